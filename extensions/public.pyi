"""Public names of extensions (``app.extensions.PUBLIC``), for type checkers."""

from .exports.mlflow import MLflowCallback as MLflowCallback
from .exports.tensorboard import TensorBoardCallback as TensorBoardCallback
from .nas import names as nas

__all__ = ["MLflowCallback", "TensorBoardCallback", "nas"]
