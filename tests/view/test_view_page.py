"""The page in a headless Chromium: what it draws, its time line, and a token that is wrong."""

import io
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from headless import browser, chromium
from served import served
from test_view_server import ANNA

from companion.view.access import Access
from companion.view.log_window import LogIndex
from companion.view.logged import LogSource
from companion.view.scene import scene_of, tables_of_log

pytestmark = [
    pytest.mark.verify,
    pytest.mark.skipif(chromium() is None, reason="no Chromium on this computer"),
]
ROOT = Path(__file__).parents[2]
SIZE = (1000, 640)


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    """A flight at the pier of a bridge."""
    from sitl.scenario import load_scenario
    from sitl.simulate import fly_loaded

    path = tmp_path_factory.mktemp("flight") / "bridge.mcap"
    fly_loaded(load_scenario(ROOT / "config/scenarios/bridge_solid.toml"), 1, log_file=path)
    return path


@contextmanager
def shown(path: Path, open_watching: bool = True):
    """The view of a log; yields its address."""
    index = LogIndex(path)
    source = LogSource(index, scene_of(tables_of_log(index.metadata)))
    try:
        with served(source, Access([ANNA], open_watching)) as (_, port):
            yield f"http://127.0.0.1:{port}/"
    finally:
        source.close()


def pixels(png: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def layers(page, *shown: str) -> None:
    """Show these layers alone, without labels and panels, at a standing time."""
    page.run(
        f"(() => {{ for (const name of Object.keys(view.layers)) view.setLayer(name, {list(shown)!r}.includes(name));"
        " for (const id of ['left', 'right', 'bottom']) document.getElementById(id).style.visibility = 'hidden'; })()"
    )


def settle(page) -> None:
    """Wait until what was asked for is drawn; a machine without a graphics processor draws some pictures a second."""
    frames = page.run("view.frames")
    page.wait(f"view.frames >= {frames + 2}")


def drawn(page) -> np.ndarray:
    settle(page)
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))")
    return pixels(page.picture())


def test_the_page_draws_aircraft_and_structure_and_plays_a_log(log, tmp_path):
    with shown(log) as url, browser(tmp_path, SIZE) as page:
        page.open(url)
        page.wait("window.view && view.loaded", 60)
        page.run("view.time.playing = false; view.renderer.fixed = true; view.time.to(60)")
        page.wait("document.getElementById('phase').textContent === 'HOLD'")
        page.wait("document.getElementById('seen').textContent.includes('markers')")
        assert "F550" in page.run("document.getElementById('title').textContent")

        layers(page)
        page.wait("Math.hypot(view.shownAt.p[0]) > 5")
        page.run("view.camera.target = [...view.shownAt.p]; view.camera.distance = 4")
        bare = drawn(page)
        x, y, _ = page.run("view.shownAt.screen")
        around = bare[int(y) - 40 : int(y) + 40, int(x) - 60 : int(x) + 60]
        assert (around.max(axis=2) > 150).sum() > 200  # the aircraft: bright on a dark ground
        orange = (around[..., 0] > 120) & (around[..., 0] > around[..., 2] + 50)
        assert orange.sum() > 5  # its forward arms

        layers(page, "structure")
        with_pier = drawn(page)
        changed = np.abs(with_pier - bare).max(axis=2) > 40
        assert changed.mean() > 0.10  # a wall of the pier
        assert np.ptp(with_pier[changed], axis=1).mean() < 20  # grey concrete

        for layer in ("path", "truth", "estimate", "bundles", "plan", "fence", "reference"):
            layers(page, layer)
            other = page.run("view.time.to(28); 1") and drawn(page)
            layers(page)
            assert (np.abs(other - drawn(page)).max(axis=2) > 20).sum() > 20, layer

        page.run("view.time.to(5); view.time.speed = 10; view.time.playing = true")
        page.wait("view.time.t > 12")
        page.run("document.querySelector('#bottom').style.visibility = 'visible'")
        page.click("#play")
        assert page.run("view.time.playing") is False
        page.click("#scrub")
        middle_s, end_s = page.run("view.time.t"), page.run("view.time.end")
        assert abs(middle_s - end_s / 2) < 0.02 * end_s
        assert page.run("document.getElementById('commands').hidden") is True  # a log takes no requests
        assert page.errors == []


COMMANDS = ("Start", "Hold here", "Go on", "Return", "Land", "Stop streaming")


@pytest.mark.parametrize(
    "size", [(390, 844), (844, 390), (700, 450), (667, 375), (1024, 600), (1280, 500), (1280, 720)], ids=str
)
def test_every_command_can_be_pressed_in_a_window_of_any_size(log, tmp_path, size):
    with shown(log) as url, browser(tmp_path, size) as page:
        page.open(url)
        page.wait("window.view && view.loaded", 60)
        page.run("view.time.playing = false; view.time.to(60)")
        page.run(
            "(() => { view.commands.show(true, 'wrong token');"
            f" document.getElementById('buttons').replaceChildren(...{list(COMMANDS)!r}.map((name) => {{"
            " const b = document.createElement('button'); b.textContent = name; return b; })); })()"
        )
        page.run("new Promise((done) => setTimeout(done, 200))")
        hit = page.run(
            "[...document.querySelectorAll('#buttons button')].filter((b) => { const r = b.getBoundingClientRect();"
            " return document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2) === b; }).map((b) => b.textContent)"
        )
        (tmp_path / "page.png").write_bytes(page.picture())
        assert hit == list(COMMANDS)


def test_the_horizon_is_the_path_that_the_controller_predicted(log, tmp_path):
    from companion.core.messages import ControlStatus
    from companion.recording.log import read_log

    at_s = 20.0  # in the search, at 1 m/s
    with shown(log) as url, browser(tmp_path, SIZE) as page:
        page.open(url)
        page.wait("window.view && view.loaded", 60)
        page.run(f"view.time.playing = false; view.renderer.fixed = true; view.time.to({at_s})")
        layers(page)
        page.wait(f"Math.abs(view.time.t - {at_s}) < 0.01")
        settle(page)
        page.run("view.camera.target = [...view.shownAt.p]; view.camera.distance = 6")
        bare = drawn(page)
        layers(page, "horizon")
        shown_ = drawn(page)
        pink = (shown_[..., 0] > 180) & (shown_[..., 1] < 170) & (shown_[..., 2] > 150)
        assert pink.sum() > 30 > ((bare[..., 0] > 180) & (bare[..., 1] < 170) & (bare[..., 2] > 150)).sum()
        end, base_s = page.run("view.world.end"), page.run("view.hello.base")
        newest = [m for m in read_log(log).of(ControlStatus) if m.horizon_W and m.stamp_s <= base_s + at_s][-1]
        assert end == pytest.approx(newest.horizon_W[-1], abs=1e-3)
        assert np.linalg.norm(np.subtract(end, page.run("view.shownAt.p"))) > 0.3
        assert page.errors == []


def test_panels_do_not_cover_each_other(log, tmp_path):
    script = """(() => {
      const boxes = ['status', 'messages', 'camera-card', 'charts', 'timeline', 'layers'].map((id) => [id, document.getElementById(id)])
        .filter(([, node]) => node.offsetParent !== null && !node.hidden).map(([id, node]) => [id, node.getBoundingClientRect()]);
      const over = [];
      for (const [a, p] of boxes) for (const [b, q] of boxes)
        if (a < b && p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom) over.push(a + '/' + b);
      return over.concat(boxes.filter(([, p]) => p.right > innerWidth + 1 || p.bottom > innerHeight + 1).map(([id]) => id + ' outside'));
    })()"""
    with shown(log) as url, browser(tmp_path, SIZE) as page:
        page.open(url)
        page.wait("window.view && view.loaded", 60)
        page.run("view.time.to(60)")
        page.wait("document.getElementById('phase').textContent === 'HOLD'")
        for width, height in ((1920, 1080), (1600, 900), (1280, 720), (1000, 600), (420, 800)):
            page.call(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
            )
            page.wait(f"({script}).length === 0", 5.0)  # the page arranges itself in its next picture


def test_a_wrong_token_is_refused_and_the_right_one_opens_the_view(log, tmp_path):
    with shown(log, open_watching=False) as url, browser(tmp_path, SIZE) as page:
        page.open(url)
        page.wait("window.view && document.getElementById('login').open")
        page.run("document.getElementById('token').value = 'x'.repeat(24)")
        page.click("#login-form button")
        page.wait("document.getElementById('login-answer').textContent === 'wrong token'")
        assert not page.run("view.loaded")
        page.run(f"document.getElementById('token').value = {ANNA.token!r}")
        page.click("#login-form button")
        page.wait("view.loaded && !document.getElementById('login').open", 60)
        assert ANNA.token not in page.run("document.cookie + location.href + document.documentElement.outerHTML")
