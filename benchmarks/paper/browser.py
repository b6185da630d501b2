"""A page as a real browser shows it: on a phone's width and on a screen's.

    python -m benchmarks.paper.browser PAGE [--sections 6] [--screenshot FOLDER]

The page is laid out in frames of these widths, as no headless browser has a window as narrow as a phone. A script
around the frames, not in the page, looks for problems. Chromium and its relatives can do that without a driver.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any

WIDTHS = (360, 1280)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
SECONDS = 120.0
MOST_SHRUNK = 2.5  # times; the text of a picture is then too small to be read
SCRIPT = """
const text = (element) => (element.getAttribute("alt") || element.textContent || "").trim().slice(0, 60);
const examine = (frame) => {
  const page = frame.contentDocument, root = page.documentElement, width = frame.contentWindow.innerWidth;
  const found = [], say = (wrong, words) => { if (wrong) found.push(`at ${width} px ${words}`); };
  const all = (selector) => [...page.querySelectorAll(selector)];
  say(root.scrollWidth > width, `the page is ${root.scrollWidth} px wide: it scrolls sideways`);
  for (const image of all("img")) {
    const times = image.naturalWidth / image.width;
    say(!(image.complete && image.naturalWidth > 0 && image.width > 0), `a picture does not load: ${text(image)}`);
    say(image.getBoundingClientRect().right > width + 0.5, `a picture is too wide: ${text(image)}`);
    say(image.width > 0 && times > MOST_SHRUNK,
      `a picture is shrunk ${times.toFixed(1)} times, its text cannot be read: ${text(image)}`);
    say(!image.alt, "a picture has no alternative text");
  }
  for (const table of all("table"))
    say(!table.querySelector("th[scope]") || !table.caption,
      `a table has no header cells or no caption: ${text(table)}`);
  for (const entry of frame.contentWindow.performance.getEntriesByType("resource"))
    say(!entry.name.startsWith("data:"), `the page loads ${entry.name}`);
  say(all("section").length !== SECTIONS, `there are ${all("section").length} sections, expected SECTIONS`);
  const needed = {doctype: page.doctype, lang: root.lang, title: page.title, viewport: all("meta[name=viewport]")[0]};
  for (const [name, value] of Object.entries(needed)) say(!value, `there is no ${name}`);
  say(all("script").length, `there are ${all("script").length} scripts; the page must do without`);
  return {width: width, height: root.scrollHeight, problems: found};
};
addEventListener("load", () => {
  document.getElementById("facts").textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(examine));
});
"""


def find() -> str | None:
    """The path of a browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def check(page: Path, sections: int, pictures: Path | None) -> list[str] | None:
    """Print and return what is wrong with a page; None where there is no browser. `pictures` get screenshots."""
    browser = find()
    if browser is None:
        print(f"NOT CHECKED in a browser: there is none of {', '.join(NAMES)}")
        return None
    if pictures is not None:
        print(*screenshots(page, browser, pictures), sep="\n")
    found, widths = problems(page, sections, browser), " and ".join(map(str, WIDTHS))
    print(*found or [f"checked in {Path(browser).name} at {widths} px: in order"], sep="\n")
    return found


def problems(page: Path, sections: int, browser: str) -> list[str]:
    """What is wrong with a page, in words."""
    facts, errors = examine(page, browser, sections)
    return [f"the console says: {error}" for error in errors] + [words for one in facts for words in one["problems"]]


def examine(
    page: Path, browser: str, sections: int, widths: Sequence[int] = WIDTHS
) -> tuple[list[dict[str, Any]], list[str]]:
    """Height and problems of the page at each of the widths, and errors of the console."""
    script = SCRIPT.replace("MOST_SHRUNK", str(MOST_SHRUNK)).replace("SECTIONS", str(sections))
    with tempfile.TemporaryDirectory() as folder:
        frames = _write_frames(page, widths, 900, Path(folder), f'<pre id="facts"></pre><script>{script}</script>')
        done = _run(browser, folder, "--dump-dom", "--virtual-time-budget=10000", frames.as_uri())
    facts = re.search(r'<pre id="facts">(.+?)</pre>', done.stdout, re.DOTALL)
    if facts is None:
        raise RuntimeError(f"{browser} showed nothing of {page} (exit code {done.returncode}): {done.stderr[-500:]}")
    found = json.loads(unescape(facts[1]))
    if [one["width"] for one in found] != list(widths):
        raise RuntimeError(f"{browser} laid the page out at {[one['width'] for one in found]} px, expected {widths}")
    return found, re.findall(r'CONSOLE[^"]*"(.*)", source', done.stderr)


def screenshots(page: Path, browser: str, into: Path, widths: Sequence[int] = WIDTHS) -> list[Path]:
    """Pictures of the whole page at each of the widths."""
    into.mkdir(parents=True, exist_ok=True)
    written = []
    for one in examine(page, browser, 0, widths)[0]:
        path = into.resolve() / f"{page.stem}_{one['width']}.png"
        with tempfile.TemporaryDirectory() as folder:
            frames = _write_frames(page, [one["width"]], one["height"], Path(folder))
            size = f"--window-size={max(one['width'], 500)},{one['height']}"
            _run(browser, folder, f"--screenshot={path}", size, frames.as_uri())
        written.append(path)
    return written


def _write_frames(page: Path, widths: Sequence[int], height: int, folder: Path, more: str = "") -> Path:
    """A page of frames. Their content is in them, so it is of the same origin and can be examined."""
    content = escape(page.read_text(encoding="utf-8"), quote=True)
    style = "border: 0; display: block;"
    frames = [f'<iframe style="{style} width: {w}px; height: {height}px" srcdoc="{content}"></iframe>' for w in widths]
    path = folder / "frames.html"
    path.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body style="margin: 0">{"".join(frames)}{more}', "utf-8")
    return path


def _run(browser: str, folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    settings = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"]
    settings += ["--enable-logging=stderr", "--v=0", f"--user-data-dir={folder}/profile"]
    if os.geteuid() == 0:
        settings.append("--no-sandbox")  # root has none
    command = [browser, *settings, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.browser", description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--sections", type=int, default=6)
    parser.add_argument("--screenshot", type=Path, help="folder for pictures of the page")
    args = parser.parse_args()
    raise SystemExit(check(args.page, args.sections, args.screenshot) != [])
