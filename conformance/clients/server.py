"""A `raddle serve` of its own, on a port that is free."""

import contextlib
import json
import pathlib
import signal
import subprocess
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "target/models/all-MiniLM-L6-v2"
GOLDEN = ROOT / "data/minilm"


class Server:
    def __init__(self, raddle, folder, *options):
        self.log = pathlib.Path(folder, "log.jsonl")
        self.report_file = pathlib.Path(folder, "report.json")
        command = [raddle, "serve", "--port", "0", "--log-format", "json", "--json", str(self.report_file), *options]
        if "--model" not in options:
            command += ["--model", str(MODEL)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        line = self.process.stdout.readline().decode()
        if not line.startswith("listening on "):
            raise SystemExit(f"the server didn't start: {line!r}\n{self.log.read_text()}")
        self.url = line.removeprefix("listening on ").strip()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read().decode()

    def process_figures(self):
        """KiB of memory, and threads, as the system counts them."""
        lines = dict(line.split(":", 1) for line in open(f"/proc/{self.process.pid}/status"))
        return int(lines["VmRSS"].split()[0]), int(lines["Threads"])

    def cpu_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def end(self):
        """What it says of its life. It must have ended well."""
        code = self.process.wait(timeout=120)
        assert code == 0, f"the server ended with {code}\n{self.log.read_text()[-2000:]}"
        return json.loads(self.report_file.read_text())

    def logged(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextlib.contextmanager
def serving(raddle, *options):
    with tempfile.TemporaryDirectory() as folder:
        server = Server(raddle, folder, *options)
        try:
            yield server
        finally:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
