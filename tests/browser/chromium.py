"""The browser of this machine: found, never downloaded."""

import os
import shutil

from playwright.sync_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def executable() -> str:
    """Its path, or a FileNotFoundError that names the package to install."""
    if found := next(filter(None, map(shutil.which, NAMES)), None):
        return found
    raise FileNotFoundError(
        f"No browser here: none of {', '.join(NAMES)} is on the path. Install one "
        "(Debian, Ubuntu: `apt-get install chromium`), then run the same command again."
    )


def launch(playwright: Playwright) -> Browser:
    """Start the browser without a window; it asks nothing of the network by itself."""
    off = ("background-networking", "component-update", "gpu", "sync")
    arguments = ["--no-first-run", *(f"--disable-{name}" for name in off)]
    # Its sandbox refuses root, which is who containers and runners are.
    arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=executable(), args=arguments)
