"""The status page in headless Chromium: it shows the numbers of /status, and asks nobody but the server.

Chromium is driven through chromedriver's own protocol (WebDriver, JSON over HTTP), for which Python needs no package.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import golden
from server import serving

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-dev-shm-usage", "about:blank"]
# Stays in front of the page's own script: what it fetched last, as text.
SPY = """
const ask = window.fetch;
window.answers = [];
window.fetch = async (...given) => {
  const answer = await ask(...given);
  window.answers.push(await answer.clone().text());
  return answer;
};
"""
# Opens a route of the page for requests, sends its example, and says what it shows.
ASK = """
const [path, done] = arguments;
const route = [...document.querySelectorAll("details")].find(route => route.querySelector("code").textContent === path);
if (!route) return done(null);
const told = route.querySelector("p"), answer = route.querySelector("pre");
route.open = true;
route.querySelector("button").click();
const wait = () => told.textContent.includes("ms") ? done([told.textContent, answer.textContent]) : setTimeout(wait, 20);
wait();
"""
# In one go, so that nothing is shown in between. The first that it was shown is the answer before the last two are.
READ = """
const shown = {};
for (const place of document.querySelectorAll("[data-field]")) shown[place.dataset.field] = place.textContent;
const strips = [...document.querySelectorAll(".strip")].map(strip => [...strip.children].map(bar => bar.style.height));
return { answers: window.answers, shown, strips, problem: document.getElementById("problem").textContent };
"""


def post(url, body=None, method="POST"):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


class Browser:
    def __init__(self, folder):
        port = None
        for name in ("chromedriver", "chromium"):
            assert shutil.which(name), f"{name} is missing: install the packages chromium and chromium-driver"
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for line in self.driver.stdout:
            if b"started successfully on port" in line:
                port = int(line.split()[-1].rstrip(b"."))
                break
        assert port, "chromedriver says no port"
        options = {"args": [*ARGUMENTS, f"--user-data-dir={folder}"], "binary": shutil.which("chromium")}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options,
                        "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"}}
        made = post(f"http://127.0.0.1:{port}/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"http://127.0.0.1:{port}/session/{made['value']['sessionId']}"

    def command(self, path, **body):
        return post(f"{self.session}/{path}", body)["value"]

    def run(self, script):
        return self.command("execute/sync", script=script, args=[])

    def ask(self, path):
        return self.command("execute/async", script=ASK, args=[path])

    def close(self):
        try:
            post(self.session, method="DELETE")
        except (OSError, urllib.error.URLError):
            pass
        self.driver.terminate()
        self.driver.wait()


def number(value):
    """As JavaScript writes it."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def field(status, name):
    for part in name.split("."):
        status = status[part]
    if status is None:
        return "–"
    if name in ("batches.fill", "batches.padding"):
        return f"{number(int(1000 * status + 0.5) / 10)} %"
    return f"{number(status)} ms" if name.startswith("latency_ms.") else number(status)


def check(raddle):
    sentences, _ = golden.read()
    with serving(raddle) as server, tempfile.TemporaryDirectory() as folder:
        browser = Browser(folder)
        try:
            browser.command("goog/cdp/execute", cmd="Page.addScriptToEvaluateOnNewDocument", params={"source": SPY})
            post(f"{server.url}/embed", {"inputs": sentences[:1]})
            browser.command("url", url=f"{server.url}/")
            # Before it has asked: what the page itself brings.
            first = json.loads(browser.run("return document.getElementById('state').textContent"))
            assert first["requests"]["succeeded"] == 1 and first["model"] == "all-MiniLM-L6-v2", first
            requests = 1
            deadline = time.monotonic() + 60
            # Until rates and strips have something to show.
            while True:
                for start in range(0, 40, 4):
                    post(f"{server.url}/embed", {"inputs": sentences[start : start + 4]})
                    requests += 1
                seen = browser.run(READ)
                status = json.loads(seen["answers"][-1]) if seen["answers"] else None
                if status and status["requests"]["per_s"] > 0 and len(seen["strips"]) > 0 and len(seen["strips"][0]) > 2:
                    break
                assert time.monotonic() < deadline, seen
            # What is shown is the latest answer, or the one before if it is being shown just now.
            candidates = [json.loads(text) for text in seen["answers"][-2:]]
            wrong = [{name: (text, field(status, name)) for name, text in seen["shown"].items() if text != field(status, name)}
                     for status in candidates]
            assert any(not found for found in wrong), wrong
            status = candidates[wrong.index({})]
            assert len(seen["shown"]) >= 19 and not seen["problem"], seen
            assert 0 < status["requests"]["succeeded"] <= requests and status["requests"]["texts_per_s"] > 0
            assert 0 < status["latency_ms"]["p50"] <= status["latency_ms"]["p99"], status
            bars = [[float(height.rstrip("%")) for height in strip] for strip in seen["strips"]]
            expected = [[100 * busy for busy in stream["busy"]] for stream in status["streams"]]
            assert [len(strip) for strip in bars] == [len(strip) for strip in expected]
            for found, wanted in zip(sum(bars, []), sum(expected, [])):
                assert abs(found - wanted) < 0.01, (found, wanted)
            assert max(max(strip) for strip in bars) > 0, "no stream was busy"
            # The page for requests, also under a path with a slash at its end.
            for path in ("docs", "docs/"):
                browser.command("url", url=f"{server.url}/{path}")
                while not (shown := browser.ask("POST /embed")):
                    assert time.monotonic() < deadline
                told, answer = shown
                assert told.startswith("200, ") and len(json.loads(answer)[0]) == 384, shown
                told, answer = browser.ask("POST /rerank")
                assert told.startswith("424, ") and "/embed_all" in answer, (told, answer)
            browser.command("url", url=f"{server.url}/")
            # Nothing was asked of others, and the policy stopped nothing of ours.
            asked = []
            for entry in browser.command("se/log", type="performance"):
                message = json.loads(entry["message"])["message"]
                if message["method"] == "Network.requestWillBeSent":
                    asked.append(message["params"]["request"]["url"])
            ours = [url for url in asked if url.startswith(f"{server.url}/")]
            # What the browser has in itself, before the page was opened, is no request.
            others = [url for url in asked if url not in ours and not url.startswith(("data:", "chrome"))]
            assert not others and f"{server.url}/status" in ours, (others, ours)
            # That a route is for another model was asked for.
            complaints = [entry for entry in browser.command("se/log", type="browser") if "status of 424" not in entry["message"]]
            assert not complaints, complaints
            # It says so when the server has gone.
            server.terminate()
            server.end()
            while "doesn't answer" not in browser.run(READ)["problem"]:
                assert time.monotonic() < deadline + 60
                time.sleep(0.1)
        finally:
            browser.close()
    return {"numbers": len(seen["shown"]), "strips": len(bars), "answers": len(seen["answers"])}


if __name__ == "__main__":
    import sys
    os.chdir(pathlib.Path(__file__).parent)
    print(check(sys.argv[1]))
