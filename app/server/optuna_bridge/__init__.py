"""The parts of Penstock that use Optuna.

They ask Optuna's samplers, make Optuna's distributions and frozen trials from ours, and serve the
ledger to Optuna's storage interface and dashboard.
"""
