"""The pages of ``penstock ui`` behind nginx, set up as the guide says, in headless Chromium."""

import re
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from ledgers.study_ledger import start_study, study_spec
from machines.browser import browser_in
from machines.system import program
from patience import PATIENCE, until
from servers.page_server import PageServer

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "watching.md"
CURVES = "document.querySelectorAll('#curves .scatterlayer .trace').length"
#: Configuration for nginx to run in a folder of its own.
ALONE = """daemon off; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
  access_log off; proxy_max_temp_file_size 0;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port}; {location} }}
}}
"""


@contextmanager
def nginx(folder, port, location):
    """nginx at ``port`` with this block of its configuration."""
    file = folder / "nginx.conf"
    file.write_text(ALONE.format(folder=folder, port=port, location=location))
    command = [program("nginx", "nginx-light"), "-e", folder / "errors", "-c", file]
    process = subprocess.Popen(command)
    try:
        until(lambda: (folder / "pid").exists() or process.poll() is not None, "nginx starts")
        assert process.poll() is None, (folder / "errors").read_text()
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def guides(port):
    """The guide's block, for pages at ``port``."""
    [block] = re.findall(r"```nginx\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert "127.0.0.1:8765;" in block
    return block.replace("8765", str(port))


@pytest.mark.parametrize("path", ["kept", "taken off"])
def test_a_page_behind_nginx_grows_and_acts(path, tmp_path):
    runner, ledger = start_study(tmp_path, study_spec(n_trials=9))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    browser = browser_in(tmp_path / "profile")
    server = PageServer(tmp_path, "--proxy", f"http://127.0.0.1:{port}/penstock")
    location = guides(server.port)
    if path == "taken off":
        location = location.replace(f"{server.port};", f"{server.port}/;")
    try:
        with nginx(tmp_path, port, location):
            browser.open(server.url)
            folder = f"http://127.0.0.1:{port}/penstock/"
            assert re.fullmatch(rf"{folder}[\w-]{{22}}/", browser.value("location.href"))
            browser.value("document.querySelector('main a').click()")
            browser.until("/^.penstock.[\\w-]{22}.study$/.test(location.pathname)")
            browser.until("document.querySelector('#forms button')")
            assert browser.value(CURVES) == 0
            while runner.engine.state.studies:
                runner.turn(1.0)
                time.sleep(0.01)
            browser.until(f"{CURVES} === 9")
            browser.value("document.querySelector('#forms [name=study]').value = '<i>nobody'")
            browser.value("document.querySelector('#forms button').click()")
            browser.until("document.getElementById('said').className === 'refused'")
            assert "there is no study '<i>nobody'" in browser.text()
    finally:
        browser.close()
        server.close()
        ledger.close()
