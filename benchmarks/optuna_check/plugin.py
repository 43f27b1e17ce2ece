"""A pytest plugin that has Optuna's own tests run on Penstock's storage.

``optuna.testing.storages.StorageSupplier`` gets a mode ``penstock``, which is the only one of
``STORAGE_MODES``; and where a study is given no storage, it gets that one in place of Optuna's in
memory. So do the tests that want a database server, some of which write from several processes. A
test that names a storage itself keeps it. A test finds no study of another one. It has two
installations where it has two storages at a time. They are those of the tests around it, since
starting one takes seconds.

With ``--their-storage inmemory`` or ``sqlite`` the mode gives a storage of Optuna's own: this
proves the plugin, and shows what fails on any storage, or on any that is not memory.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import optuna
import penstock
import pytest
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.testing import storages as testing
from penstock.app.host.settings import load
from penstock.app.server.services import services

from benchmarks.optuna_check import CHOICES, MODE

#: Number of tests that share an installation. The ledger keeps the remains of deleted studies.
TESTS = 50


class Storages:
    """Makes the storages of one test after another."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._homes: list[str] = []
        self._served = 0
        self._given: list[BaseStorage] = []
        #: True if the test has asked for a storage.
        self.used = False
        #: Number of the test's suppliers with a storage now. Each has an installation of its own.
        self.open = 0

    def make(self, which: int = 0) -> BaseStorage:
        """A storage of the test's installation ``which``, or one of Optuna's."""
        self.used = True
        if self._kind == "inmemory":
            return InMemoryStorage()
        if self._kind == "sqlite":
            self._homes.append(tempfile.mkdtemp())
            return RDBStorage(f"sqlite:///{self._homes[-1]}/optuna.db")
        while len(self._homes) <= which:
            self._homes.append(tempfile.mkdtemp())
        os.environ["PENSTOCK_HOME"] = self._homes[which]
        self._given.append(penstock.storage())
        return self._given[-1]

    def clear(self) -> None:
        """Leave no study to the next test, and after ``TESTS`` of them new installations."""
        for each in self._given:  # what a test has left unsent would warn in the next one
            each.remove_session()
            for study in each.get_all_studies():
                each.delete_study(study._study_id)
        self._given.clear()
        self._served += self.used
        self.used, self.open = False, 0
        if self._served == TESTS:
            self.end()

    def end(self) -> None:
        """End the installations."""
        for home in self._homes:
            if self._kind == MODE:
                os.environ["PENSTOCK_HOME"] = home
                services.take_down(load())
            shutil.rmtree(home, ignore_errors=True)
        os.environ.pop("PENSTOCK_HOME", None)
        self._homes.clear()
        self._served = 0


class Plugin:
    """The hooks of one run; ``results`` is the file that gets a line of JSON a test."""

    def __init__(self, made: Storages, results: Path | None) -> None:
        self._made = made
        self._results = results
        self._of: dict[str, dict[str, Any]] = {}
        if results is not None:
            results.write_text("")

    @pytest.fixture(autouse=True)
    def _penstock(self, request: pytest.FixtureRequest) -> Iterator[None]:
        yield
        request.node.user_properties.append((MODE, self._made.used))
        self._made.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the worst of a test's three phases."""
        found = self._of.setdefault(report.nodeid, {"outcome": "passed", "why": "", "seconds": 0.0})
        found["seconds"] += report.duration
        if report.outcome != "passed" and found["outcome"] != "failed":
            # An expected failure is reported as skipped.
            found["outcome"] = report.outcome
            found["why"] = str(report.longrepr).strip().splitlines()[-1][:300]
        if report.when == "teardown":
            found["ours"] = dict(report.user_properties).get(MODE, False)
            if self._results is not None:  # now: a run that is cut off has what it found
                with self._results.open("a") as results:
                    results.write(json.dumps({"id": report.nodeid, **found}) + "\n")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Give ours as the database server that some tests want, several processes of one."""
        for module in {item.module for item in items if item.path.stem == "test_with_server"}:
            module.get_storage = lambda: nullcontext(self._made.make())

    def pytest_sessionfinish(self) -> None:
        """End what runs."""
        self._made.end()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two options of this plugin."""
    parser.addoption("--their-storage", choices=CHOICES, default=MODE)
    parser.addoption("--results", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    """Put our storage in place, before the tests are collected."""
    made = Storages(config.getoption("--their-storage"))
    results = None if hasattr(config, "workerinput") else config.getoption("--results")
    config.pluginmanager.register(Plugin(made, results))
    testing.STORAGE_MODES[:] = [MODE]
    supplier_type = testing.StorageSupplier
    enter_theirs, exit_theirs = supplier_type.__enter__, supplier_type.__exit__
    get_storage = optuna.storages.get_storage

    def enter(supplier: testing.StorageSupplier) -> BaseStorage:
        if supplier.storage_specifier != MODE:
            return enter_theirs(supplier)
        if supplier.extra_args:
            raise ValueError("Penstock's storage takes no arguments")
        supplier.storage = made.make(made.open)
        made.open += 1
        return supplier.storage

    def leave(supplier: testing.StorageSupplier, *of: Any) -> None:
        made.open -= supplier.storage_specifier == MODE
        exit_theirs(supplier, *of)

    def get(storage: str | BaseStorage | None) -> BaseStorage:
        return made.make() if storage is None else get_storage(storage)

    supplier_type.__enter__, supplier_type.__exit__ = enter, leave
    optuna.storages.get_storage = get
