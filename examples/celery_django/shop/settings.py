"""Settings of the shop: those that Django asks for, and its broker."""

import os

SECRET_KEY = "an example has no secrets"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True

CELERY_BROKER_URL = os.environ.get("SHOP_BROKER", "redis://localhost:6379/0")
#: The file in which the last deployed parameters are; a real shop has a database.
DEPLOYED = os.environ.get("SHOP_DEPLOYED", "deployed.json")
