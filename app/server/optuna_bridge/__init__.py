"""The parts of Penstock's server side that use Optuna.

These modules ask Optuna's samplers, convert Penstock's trials to Optuna's frozen trials and
distributions, and offer the ledger through Optuna's storage interface and dashboard.
"""
