"""Make the pictures of these docs from a real run of the quickstart: python docs/pictures.py.

It also runs the notebook, and keeps what that shows. Needs Chromium on the path. Everything runs in
a state folder of its own, which is removed at the end.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from penstock.app.broker.client import Client
from penstock.app.host.settings import load
from penstock.app.ledger.reader import Reader
from penstock.app.server.optuna_bridge.storage import LedgerStorage
from penstock.app.show.drawings.page import picture_of_mark
from penstock.app.show.views.live import Watcher
from penstock.app.show.views.plan import plan_view
from penstock.app.show.views.progress import View
from penstock.app.show.views.screen import study_screen
from penstock.base.errors import PenstockError
from penstock.testkit.browser import Browser
from rich.console import Console, RenderableType
from rich.terminal_theme import TerminalTheme

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "img"
PENSTOCK = (sys.executable, "-m", "penstock")
BROWSER = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--virtual-time-budget=5000"),
)
#: The size of a picture of a page, in pixels.
WIDTH, HEIGHT = 1180, 940
#: The width of a terminal, in characters.
COLUMNS = 118
#: A terminal in the colours that pages have in the dark: paper and ink, then what black, red,
#: green, yellow, blue, magenta, cyan and white are there.
TERMINAL = TerminalTheme(
    (15, 20, 26),
    (232, 237, 242),
    [
        *((40, 50, 61), (240, 138, 126), (92, 199, 149), (226, 180, 85)),
        *((127, 176, 255), (204, 121, 167), (127, 176, 255), (232, 237, 242)),
    ],
)
#: The live view is taken when about this share of the study's epochs is done.
MOMENT = 0.6


def main() -> None:
    """Run the quickstart once, watched in all ways, and take its pictures."""
    (PICTURES / "mark.svg").write_text(f"{picture_of_mark()}\n")
    home = Path(tempfile.mkdtemp(prefix="pictures-"))
    # The node's name is in the pictures: not this machine's.
    os.environ |= {"PENSTOCK_HOME": str(home), "PENSTOCK_NODE": "node"}
    env = dict(os.environ)
    subprocess.run([*PENSTOCK, "up"], env=env, check=True, stdout=subprocess.DEVNULL)
    port = free_port()
    flower = subprocess.Popen(
        [*PENSTOCK, "flower", "--port", str(port)], env=env, stdout=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        # The digits are copied so that no path of this machine is in a picture.
        script = shutil.copy(ROOT / "examples" / "digits.py", home / "digits.py")
        run = subprocess.Popen([*PENSTOCK, "run", script], env=env, cwd=home)
        view, at, plan = watch(Reader(f"sqlite:///{home / 'ledger.db'}"), Client(load()), run)
        save_screen(study_screen(view, at), "live.svg", "penstock run examples/digits.py")
        save_screen(plan_view(plan), "plan.svg", "penstock plan")
        subprocess.run([*PENSTOCK, "report", "-o", home / "report.html"], env=env, check=True)
        shoot_pages(home, env)
        word = (home / "flower.password").read_text().strip()
        url = f"http://penstock:{word}@127.0.0.1:{port}/tasks"
        shoot(url, PICTURES / "flower.png", width=1960, height=640)
        shoot_dashboard(env)
        run_notebook(ROOT / "docs" / "notebook.ipynb", home, env)
    finally:
        flower.terminate()
        flower.wait()
        subprocess.run([*PENSTOCK, "down"], env=env, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(home)


def shoot_pages(home: Path, env: dict[str, str]) -> None:
    """Take the study's report and its pages in the browser, light and dark."""
    port, browser = free_port(), Browser(home / "profile")
    pages = subprocess.Popen(
        [*PENSTOCK, "ui", "--port", str(port)], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert pages.stdout is not None
        browser.open(pages.stdout.readline().strip())  # it lets in
        page = str(browser.value("location.href")).rstrip("/")  # the folder of all pages
        browser.send("Emulation.setScrollbarsHidden", hidden=True)
        study = Reader(f"sqlite:///{home / 'ledger.db'}").studies()[-1].id
        report = f"file://{home / 'report.html'}"
        # In the dark they are shown further down: what is there is not in the other pictures.
        for name, address, height, below in (
            ("report", report, HEIGHT, ""),
            ("report-dark", report, HEIGHT, "#history"),
            ("page", f"{page}/study?id={study}", HEIGHT, ""),
            ("page-dark", f"{page}/study?id={study}", HEIGHT, "#curves"),
            ("page-devices", f"{page}/devices", 620, ""),
        ):
            browser.size(WIDTH, height, dark=bool(below))
            browser.open(address)
            browser.until("document.querySelector('.chart .main-svg')")
            if below:
                browser.value(f"document.querySelector('{below}').scrollIntoView()")
            browser.picture(PICTURES / f"{name}.png")
        shoot_branch(browser, f"{page}/trial?id={study}", Reader(f"sqlite:///{home / 'ledger.db'}"))
    finally:
        browser.close()
        pages.terminate()
        pages.wait()


def shoot_branch(browser: Browser, address: str, reader: Reader) -> None:
    """Take the page of the trial that was trained longest, with a branch not yet made."""
    trial = max(reader.trials(reader.studies()[-1].id), key=lambda trial: trial.epoch)
    browser.size(WIDTH, HEIGHT)
    browser.open(f"{address}&n={trial.number}")
    browser.until("document.querySelector('.chart .main-svg')")
    # As if the curve had been clicked, and another learning rate typed.
    for field, value in (("at", trial.epoch // 2), ("param.lr", "0.003")):
        here = f"""document.querySelector('#branch [name="{field}"]')"""
        browser.value(f"{here}.value = '{value}'")
        browser.value(f"{here}.dispatchEvent(new Event('input', {{bubbles: true}}))")
    browser.until("document.querySelector('#branch output').className === 'done'")
    browser.value("document.querySelector('#curves').scrollIntoView()")
    browser.picture(PICTURES / "page-branch.png")


def shoot_dashboard(env: dict[str, str]) -> None:
    """Take the newest study as optuna-dashboard shows it."""
    port = free_port()
    dashboard = subprocess.Popen(
        [*PENSTOCK, "dashboard", "--port", str(port)], env=env, stdout=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        reader = Reader(f"sqlite:///{env['PENSTOCK_HOME']}/ledger.db")
        study = LedgerStorage(reader).get_all_studies()[-1]
        url = f"http://127.0.0.1:{port}/dashboard/studies/{study._study_id}"
        shoot(url, PICTURES / "dashboard.png", width=1500, height=1150)
    finally:
        dashboard.terminate()
        dashboard.wait()


def run_notebook(path: Path, folder: Path, env: dict[str, str]) -> None:
    """Run a notebook in ``folder``, and store it with its outputs."""
    env = {**env, "PYTHONWARNINGS": "ignore"}  # tqdm's word on ipywidgets, with a path of ours
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, record_timing=False).execute(cwd=str(folder), env=env)
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


def watch(
    reader: Reader, client: Client, run: subprocess.Popen[bytes]
) -> tuple[View, float, dict[str, Any]]:
    """Return the live view in the middle of the study's run, when that was, and the plan."""
    best: View | None = None
    at, plan = 0.0, {}
    while run.poll() is None:
        with suppress(PenstockError):
            view = Watcher(reader, reader.studies()[-1].id).poll() if reader.studies() else None
            running = view is not None and any(t.state == "running" for t in view.trials)
            if view is not None and running and distance(view) < distance(best):
                best, at, plan = view, time.time(), client.plan()
        time.sleep(0.02)
    assert best is not None, "the study was over before it was seen"
    return best, at, plan


def distance(view: View | None) -> float:
    if view is None or not view.progress.expected:
        return 1.0
    return abs(view.progress.epochs / view.progress.expected - MOMENT)


def save_screen(what: RenderableType, name: str, title: str) -> None:
    """Write ``what`` as a terminal shows it to the picture ``name``."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(file=nowhere, record=True, width=COLUMNS, force_terminal=True)
        console.print(what, highlight=False)
    text = console.export_svg(title=title, theme=TERMINAL)
    # Rich asks for a font from the network; viewers use one of their own instead.
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
    text = text.replace("Fira Code", "Menlo, DejaVu Sans Mono, Consolas")
    (PICTURES / name).write_text(text)


def shoot(url: str, picture: Path, *, width: int, height: int) -> None:
    """Take a picture of the page at ``url``, sizes in pixels."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                *BROWSER,
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                f"--screenshot={picture}",
                url,
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_for(port: int) -> None:
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise SystemExit(f"nothing answers at port {port}")


if __name__ == "__main__":
    main()
