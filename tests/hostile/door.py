"""Attacks by files that are read in or lie next to a script: accepted, or refused with words."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from . import plain
from .damage import damaged
from .site import PATIENCE, Field
from .verdict import Hung

#: Seconds that a command may take for a file that is not worth more.
AT_THE_DOOR = 8.0


def run_script(site: Field, folder: Path | bytes, wanted: int | None, words: str = ".") -> None:
    """``penstock run`` of a script in ``folder``: all is right, or it is refused with ``words``."""
    Path(os.fsdecode(folder)).mkdir(exist_ok=True, parents=True)
    script = Path(os.fsdecode(folder)) / "script.py"
    script.write_text(plain.SCRIPT)
    try:
        status, said = site.penstock("run", os.fsencode(script), seconds=30)
    except Hung as error:  # it waits, and has said what for
        if wanted == 0 or not error.told(words):
            raise
        return
    if status == 0:
        if "all is right" not in said:
            site.found("wrong", said[-200:])
    elif wanted == 0:
        site.found("failed", f"penstock run: {said[-250:]}")
    else:
        site.clear(said, words, "penstock run")


def no_utf8(site: Field) -> None:
    folder = os.fsencode(site.folder / "cat") + b"\xff\xfe"
    run_script(site, folder, None, "UTF-8|path|name")


def beside(site: Field, *, names: Sequence[str]) -> None:
    """A module of the user's that is called like a library."""
    folder = site.folder / f"beside-{'-'.join(names)}"
    folder.mkdir()
    for name in names:
        (folder / f"{name}.py").write_text("CAT = 1\n")
    run_script(site, folder, None, "|".join(rf"{name}\.py" for name in names))


def alias_bomb(site: Field) -> None:
    """A file that is read in and not worth more is refused at once, with words."""
    path = site.folder / "bomb.yaml"
    path.write_bytes(_bomb())
    began = time.monotonic()
    status, said = site.penstock("run", path, seconds=PATIENCE)
    took = time.monotonic() - began
    if status == 0:
        site.found("failed", f"penstock run took {path.name}")
    else:
        site.clear(said, "is not a key", "penstock run")
    if took > AT_THE_DOOR:
        site.found("failed", f"penstock run took {took:.1f} s for {path.name}")


def _bomb() -> bytes:
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 9)]
    return "\n".join(["l0: &l0 [cat]", *levels, "code: s.py:objective", "space: *l8"]).encode()


def imported(site: Field, *, damage: str, seed: int) -> None:
    """An export that was damaged on its way is refused, or what it says is taken as it stands."""
    study = next(row for row in site.reader.studies() if row.status == "complete")
    path = site.folder / f"export-{seed}.json"
    status, said = site.penstock("export", study.id, "--output", path)
    if status:
        site.found("failed", f"penstock export: {said[-200:]}")
        return
    text = path.read_bytes().replace(study.id.encode(), f"imported-{seed}".encode())
    path.write_bytes(text.replace(study.name.encode(), f"imported-{seed}".encode()))
    with damaged([path], damage, random.Random(seed)):
        status, said = site.penstock("import", path)
        if status:
            words = "JSON|file|export|field|refus|damag|link|folder|directory|UTF-8|is not|must be"
            site.clear(said, words, "penstock import")
        elif site.penstock("ls")[0]:
            site.found("failed", "penstock ls fails after it")
