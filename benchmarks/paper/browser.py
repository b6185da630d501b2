"""A page as a real browser shows it: on a phone's width and on a screen's.

    python -m benchmarks.paper.browser PAGE [--sections 6] [--screenshot FOLDER]

The page is laid out in frames of these widths, as no headless browser has a window as narrow as a phone. A script
around the frames, not in the page, asks what came of it. Chromium and its relatives can tell that without a driver.
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
FACTS = """
addEventListener("load", () => {
  const text = (element) => (element.getAttribute("alt") || element.textContent || "").trim().slice(0, 60);
  const facts = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument, root = page.documentElement, width = frame.contentWindow.innerWidth;
    const all = (selector) => [...page.querySelectorAll(selector)];
    return {
      width: width, layout: root.scrollWidth, height: root.scrollHeight,
      doctype: page.doctype !== null, lang: root.lang, title: page.title,
      viewport: page.querySelector("meta[name=viewport]") !== null,
      sections: all("section").length, pictures: all("img").length, tables: all("table").length,
      broken: all("img").filter((i) => !(i.complete && i.naturalWidth > 0 && i.width > 0)).map(text),
      wide: all("img").filter((i) => i.getBoundingClientRect().right > width + 0.5).map(text),
      shrunk: all("img").filter((i) => i.width > 0).map((i) => [text(i), i.naturalWidth / i.width]),
      nameless: all("img").filter((i) => !i.alt).length,
      headless: all("table").filter((t) => !t.querySelector("th[scope]") || !t.caption).map(text),
      scripts: all("script").length,
      loaded: frame.contentWindow.performance.getEntriesByType("resource").map((r) => r.name)
        .filter((name) => !name.startsWith("data:")),
    };
  });
  document.getElementById("facts").textContent = JSON.stringify(facts);
});
"""


def find() -> str | None:
    """A browser that can be asked, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def problems(page: Path, sections: int, browser: str) -> list[str]:
    """What is wrong with a page, in words; nothing if all is well."""
    facts, errors = examined(page, browser)
    found = [f"the console says: {error}" for error in errors]
    for one in facts:
        at = f"at {one['width']} px"
        if one["layout"] > one["width"]:
            found.append(f"{at} the page is {one['layout']} px wide: it scrolls sideways")
        found += [f"{at} a picture does not load: {name}" for name in one["broken"]]
        found += [f"{at} a picture is too wide: {name}" for name in one["wide"]]
        for name, times in one["shrunk"]:
            if times > MOST_SHRUNK:
                found.append(f"{at} a picture is shrunk {times:.1f} times, its text cannot be read: {name}")
        found += [f"{at} a table has no header cells or no caption: {name}" for name in one["headless"]]
        found += [f"{at} the page loads {name}" for name in one["loaded"]]
        if one["sections"] != sections:
            found.append(f"{at} there are {one['sections']} sections, expected {sections}")
        if one["nameless"]:
            found.append(f"{at} {one['nameless']} pictures have no alternative text")
        found += [f"{at} there is no {name}" for name in ("doctype", "lang", "title", "viewport") if not one[name]]
        if one["scripts"]:
            found.append(f"{at} there are {one['scripts']} scripts; the page must do without")
    return found


def examined(page: Path, browser: str, widths: Sequence[int] = WIDTHS) -> tuple[list[dict[str, Any]], list[str]]:
    """Facts of the page at each of the widths, and errors of the console."""
    with tempfile.TemporaryDirectory() as folder:
        around = _around(page, widths, 900, Path(folder), f'<pre id="facts"></pre><script>{FACTS}</script>')
        done = _run(browser, folder, "--dump-dom", "--virtual-time-budget=10000", around.as_uri())
    told = re.search(r'<pre id="facts">(.+?)</pre>', done.stdout, re.DOTALL)
    if told is None:
        raise RuntimeError(f"{browser} showed nothing of {page} (exit code {done.returncode}): {done.stderr[-500:]}")
    facts = json.loads(unescape(told[1]))
    if [one["width"] for one in facts] != list(widths):
        raise RuntimeError(f"{browser} laid the page out at {[one['width'] for one in facts]} px, expected {widths}")
    return facts, re.findall(r'CONSOLE[^"]*"(.*)", source', done.stderr)


def screenshots(page: Path, browser: str, into: Path, widths: Sequence[int] = WIDTHS) -> list[Path]:
    """The whole page at each of the widths, for a human."""
    facts, _ = examined(page, browser, widths)
    into.mkdir(parents=True, exist_ok=True)
    written = []
    for one in facts:
        path = into.resolve() / f"{page.stem}_{one['width']}.png"
        with tempfile.TemporaryDirectory() as folder:
            around = _around(page, [one["width"]], one["height"], Path(folder))
            size = f"--window-size={max(one['width'], 500)},{one['height']}"
            _run(browser, folder, f"--screenshot={path}", size, around.as_uri())
        written.append(path)
    return written


def _around(page: Path, widths: Sequence[int], height: int, folder: Path, more: str = "") -> Path:
    """A page of frames. Their content is in them, so it is of the same origin and can be asked."""
    content = escape(page.read_text(encoding="utf-8"), quote=True)
    style = "border: 0; display: block;"
    frames = [f'<iframe style="{style} width: {w}px; height: {height}px" srcdoc="{content}"></iframe>' for w in widths]
    path = folder / "around.html"
    path.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body style="margin: 0">{"".join(frames)}{more}', "utf-8")
    return path


def _run(browser: str, folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    settings = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"]
    settings += ["--enable-logging=stderr", "--v=0", f"--user-data-dir={folder}/profile"]
    if os.geteuid() == 0:
        settings.append("--no-sandbox")  # root has none
    command = [browser, *settings, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper.browser", description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--sections", type=int, default=6)
    parser.add_argument("--screenshot", type=Path, help="folder for pictures of the page")
    args = parser.parse_args()
    browser = find()
    if browser is None:
        raise SystemExit(f"no browser found; one of {', '.join(NAMES)} is needed")
    if args.screenshot is not None:
        print(*screenshots(args.page, browser, args.screenshot), sep="\n")
    found = problems(args.page, args.sections, browser)
    print(*found or [f"{args.page} is in order at {' and '.join(map(str, WIDTHS))} px in {browser}"], sep="\n")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
