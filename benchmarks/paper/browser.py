"""A page as a real browser shows it: on a phone's width and on a screen's.

The page is laid out in frames of these widths, as no headless browser has a window as narrow as a phone. A script
around the frames, not in the page, looks for problems. Chromium and its relatives can do that without a driver.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path

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


def check(page: Path, sections: int, pictures: Path | None = None) -> list[str]:
    """Print and return what is wrong with a page, nothing where there is no browser. `pictures` get screenshots."""
    browser = find()
    if browser is None:
        print(f"NOT CHECKED in a browser: there is none of {', '.join(NAMES)}")
        return []
    script = SCRIPT.replace("MOST_SHRUNK", str(MOST_SHRUNK)).replace("SECTIONS", str(sections))
    script = f'<pre id="facts"></pre><script>{script}</script>'
    done = _show(browser, page, WIDTHS, 900, ["--dump-dom", "--virtual-time-budget=10000"], script)
    written = re.search(r'<pre id="facts">(.+?)</pre>', done.stdout, re.DOTALL)
    if written is None:
        raise RuntimeError(f"{browser} showed nothing of {page} (exit code {done.returncode}): {done.stderr[-500:]}")
    facts = json.loads(unescape(written[1]))
    widths = [one["width"] for one in facts]
    if widths != list(WIDTHS):
        raise RuntimeError(f"{browser} laid the page out at {widths} px, expected {WIDTHS}")
    found = [f"the console says: {error}" for error in re.findall(r'CONSOLE[^"]*"(.*)", source', done.stderr)]
    found += [words for one in facts for words in one["problems"]]
    for one in facts if pictures is not None else ():
        pictures.mkdir(parents=True, exist_ok=True)
        path, (width, height) = pictures.resolve() / f"{page.stem}_{one['width']}.png", (one["width"], one["height"])
        _show(browser, page, [width], height, [f"--screenshot={path}", f"--window-size={max(width, 500)},{height}"])
        print(path)
    print(*found or [f"checked in {Path(browser).name} at {' and '.join(map(str, WIDTHS))} px: in order"], sep="\n")
    return found


def _show(
    browser: str, page: Path, widths: Sequence[int], height: int, arguments: Sequence[str], more: str = ""
) -> subprocess.CompletedProcess[str]:
    """Open a page of frames. Their content is in them, so it is of the same origin and can be examined."""
    content = escape(page.read_text(encoding="utf-8"))
    style = f"border: 0; display: block; height: {height}px"
    frames = [f'<iframe style="{style}; width: {width}px" srcdoc="{content}"></iframe>' for width in widths]
    settings = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"]
    settings += ["--enable-logging=stderr", "--v=0"]
    if os.geteuid() == 0:
        settings.append("--no-sandbox")  # root has none
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frames.html"
        body = f'<body style="margin: 0">{"".join(frames)}{more}'
        path.write_text(f'<!DOCTYPE html><meta charset="utf-8">{body}', "utf-8")
        command = [browser, *settings, f"--user-data-dir={folder}/profile", *arguments, path.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
