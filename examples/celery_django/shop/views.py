"""Two views: one starts a study and returns at once, the other shows what was deployed."""

import json
from pathlib import Path

import penstock
from django.conf import settings
from django.http import JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from .tasks import deploy
from .training import objective


@csrf_exempt
@require_POST
def tune(request, trials):
    study = penstock.create_study(direction="maximize", on_end=deploy.s())
    study.submit(objective, n_trials=trials)
    return JsonResponse({"study": study.study_name})


def deployed(request):
    file = Path(settings.DEPLOYED)
    return JsonResponse(json.loads(file.read_text()) if file.exists() else {})
