"""The pages that a run writes, opened from the disk as a person opens them."""

import subprocess

from conftest import PYTHON, copied, environment


def test_the_index_leads_to_a_notebook_with_its_outputs_and_pictures(tmp_path, page):
    folder = copied(tmp_path / "course")
    words = [PYTHON, "-m", "course", "run", "06"]
    subprocess.run(words, cwd=folder, env=environment(), check=True)
    page.goto((folder / "build/index.html").as_uri())
    assert page.get_by_text("✓ passed").count() == 1
    page.get_by_role("link").click()
    assert page.locator(".jp-OutputArea-output").count() > 10
    pictures = page.locator(".jp-OutputArea-output img")
    assert pictures.count()
    assert all(pictures.evaluate_all("all => all.map(p => p.naturalWidth)"))
