"""A FastAPI app on Celery that tunes its model, in one file.

celery -A shop worker &
PENSTOCK_CELERY_APP=shop uvicorn shop:api

Then ``curl -X POST localhost:8000/studies`` and, a little later, ``curl localhost:8000/deployed``.
"""

import json
import os
from pathlib import Path

import penstock
from celery import Celery
from fastapi import FastAPI
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

app = Celery("shop", broker=os.environ.get("SHOP_BROKER", "redis://localhost:6379/0"))
api = FastAPI()
#: The file in which the last deployed parameters are; a real shop has a database.
DEPLOYED = Path(os.environ.get("SHOP_DEPLOYED", "deployed.json"))


def objective(trial):
    alpha = trial.suggest_float("alpha", 1e-6, 1e-1, log=True)
    x, y = load_digits(return_X_y=True)
    model = SGDClassifier(alpha=alpha, random_state=0)
    for epoch in range(4):
        model.partial_fit(x[:1300], y[:1300], classes=range(10))
        accuracy = model.score(x[1300:], y[1300:])
        trial.report(accuracy, epoch)
    return accuracy


@app.task(name="shop.deploy")
def deploy(study):
    if study["best"] is not None:
        DEPLOYED.write_text(json.dumps({"from": study["name"], **study["best"]}))


@api.post("/studies")
def tune(trials: int = 4):
    study = penstock.create_study(direction="maximize", on_end=deploy.s())
    study.submit(objective, n_trials=trials)
    return {"study": study.study_name}


@api.get("/deployed")
def deployed():
    return json.loads(DEPLOYED.read_text()) if DEPLOYED.exists() else {}
