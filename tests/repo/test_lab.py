"""`make lab` opens the course also where its usual port is taken."""

import re
import signal
import socket
import subprocess
import sys

import requests
from conventions import ROOT
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry


def test_a_taken_port_is_told_and_another_one_serves_the_course():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    options = re.search(r"^\t@\$\(PYTHON_VENV\) -m jupyterlab (.*)$", makefile, re.MULTILINE)[1]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "jupyterlab", *options.split(), "--no-browser"]
        lab = subprocess.Popen(
            [*command, "--allow-root", f"--port={port}", "--IdentityProvider.token=secret"],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said = ""
            while not (address := re.search(r"http://127\.0\.0\.1:\d+/", said)):
                line = lab.stderr.readline()
                assert line, f"JupyterLab ended:\n{said}"
                said += line
            assert f"port {port} is already in use" in said
            session = requests.Session()  # the address is said a moment before it answers
            session.mount("http://", HTTPAdapter(max_retries=Retry(8, backoff_factor=0.1)))
            listing = f"{address[0]}api/contents/02_xla_rules.ipynb?content=0&token=secret"
            assert session.get(listing, timeout=30).json()["name"] == "02_xla_rules.ipynb"
        finally:
            lab.send_signal(signal.SIGTERM)
            lab.communicate(timeout=30)
