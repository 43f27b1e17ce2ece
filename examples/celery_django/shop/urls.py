"""The shop's addresses."""

from django.urls import path

from .views import deployed, tune

urlpatterns = [path("tune/<int:trials>", tune), path("deployed", deployed)]
