"""The user of the simulated bench: writes its bench file, answers questions, runs the command, in simulated time."""

from calibration_paths import BENCHES
from click.testing import CliRunner

from calibration.thrust.bench import display, pause
from companion.cli import main
from sitl.airframe import load_airframe
from sitl.bench import SimulatedBench, airframe_motor

QUICK = {"step_us": 50, "settle_s": 0.6, "readings": 5, "interval_s": 0.2, "ramp_us_s": 1000}


class User:
    """`answers` to the questions in their order; "plug" connects the next battery first and presses Enter."""

    def __init__(self, monkeypatch, folder, charges=(0.95,), factor=0.0, faults=None, answers=None, **bench):
        self.folder, self.questions = folder, []
        airframe = load_airframe("f550")
        options = {"thrust_model_factor": factor} | ({"faults": faults} if faults else {})
        simulated = {k: bench.pop(k) for k in ("by_hand", "scale_zero_g", "disarmed_us") if k in bench}
        self.world = SimulatedBench(airframe_motor(airframe, factor), airframe, list(charges), **options, **simulated)
        self.answers = list(answers) if answers is not None else ["spin"] + ["plug", "spin"] * (len(charges) - 1)
        self.raw, self.bench_file = folder / "raw.csv", folder / "bench.toml"
        self.write_bench(batteries=len(charges), **bench)
        monkeypatch.setattr(pause, "SystemClock", lambda: self.world)
        monkeypatch.setattr(display.LogDisplay, "ask", lambda _, question, tick: self.ask(question, tick))

    def write_bench(self, template="hx711", **changes):
        lines = (BENCHES / f"{template}.toml").read_text(encoding="utf-8").splitlines()
        urls = [f'url = "{self.world.scale_url}"', f'url = "{self.world.motor_url}"']
        values = {**QUICK, **changes}
        out = []
        for line in lines:
            key = line.split(" = ")[0]
            if key == "url":
                line = urls.pop(0)
            elif key in values:
                value = values[key]
                line = "" if value is None else f"{key} = {value!r}".replace("True", "true").replace("False", "false")
            out.append(line)
        self.bench_file.write_text("\n".join(out) + "\n", encoding="utf-8")

    def ask(self, question, tick):
        self.questions.append(question)
        for _ in range(20):
            self.world.sleep(0.05)
            tick()
        answer = self.answers.pop(0)
        if answer == "plug":
            self.world.next_battery()
            return ""
        return answer

    def call(self, *arguments):
        """Run ``companion calibrate thrust`` with the bench; returns click's result."""
        line = ["calibrate", "thrust", "--bench", str(self.bench_file), "--save", str(self.raw), "--motors", "6"]
        line += map(str, arguments)
        return CliRunner().invoke(main, line, catch_exceptions=False)

    def rows(self):
        """Readings in the raw file, as dictionaries of text."""
        lines = [line for line in self.raw.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        head = lines[0].split(",")
        return [dict(zip(head, line.split(","), strict=True)) for line in lines[1:]]

    def motor_is_off(self):
        """Whether the motor is off a second later."""
        self.world.sleep(1.0)
        return self.world.pwm_us <= self.world.disarmed_us and self.world.thrust < 0.01
