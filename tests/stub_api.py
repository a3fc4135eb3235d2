"""The Messages API as far as the annotation uses it, on loopback, driven by a script."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "claude-haiku-4-5"


def message(*texts, stop="end_turn", blocks=()):
    """A reply's JSON."""
    content = [*blocks, *({"type": "text", "text": text} for text in texts)]
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": content,
        "stop_reason": stop, "usage": {"input_tokens": 10, "output_tokens": 5},
    }  # fmt: skip


def api_error(kind, text="no"):
    return {"type": "error", "error": {"type": kind, "message": text}}


class Stub(ThreadingHTTPServer):
    """Replies are a message's JSON, ``(status, JSON or bytes, headers)`` or "hang up": ``script``
    to POST /v1/messages in turn, the last one for ever; ``batch_script`` to creating a batch and
    ``results_script`` to reading results, while they last. ``result(params)`` makes each line's
    ``result``, ``lines(lines)`` may change them; ``polls`` is how often a batch is in progress.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.script = [message('{"score": 3}')]
        self.batch_script, self.results_script = [], []
        self.polls = 0
        self.result = lambda params: {"type": "succeeded", "message": message('{"score": 3}')}
        self.lines = lambda lines: lines
        self.asked = []  # bodies of POST /v1/messages
        self.headers = []  # of every POST
        self.batches = {}  # id -> its requests

    def batch_json(self, name, status):
        return {
            "id": name, "type": "message_batch", "processing_status": status,
            "results_url": f"{self.url}/v1/messages/batches/{name}/results",
        }  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: else the system waits 40 ms between them

    def log_message(self, *args):
        pass

    def do_POST(self):
        stub = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        stub.headers.append(dict(self.headers))
        if self.path == "/v1/messages":
            stub.asked.append(body)
            return self.reply(stub.script.pop(0) if len(stub.script) > 1 else stub.script[0])
        if stub.batch_script:
            return self.reply(stub.batch_script.pop(0))
        name = f"msgbatch_{len(stub.batches)}"
        stub.batches[name] = body["requests"]
        self.reply(stub.batch_json(name, "in_progress"))

    def do_GET(self):
        stub = self.server
        name, _, tail = self.path.removeprefix("/v1/messages/batches/").partition("/")
        if name not in stub.batches:
            return self.reply((404, api_error("not_found_error"), {}))
        if not tail:
            stub.polls -= 1
            return self.reply(stub.batch_json(name, "in_progress" if stub.polls >= 0 else "ended"))
        if stub.results_script:
            return self.reply(stub.results_script.pop(0))
        lines = [
            {"custom_id": request["custom_id"], "result": stub.result(request["params"])}
            for request in stub.batches[name]
        ]
        text = "".join(json.dumps(line) + "\n" for line in stub.lines(lines))
        self.reply((200, text.encode(), {"content-type": "application/x-jsonl"}))

    def reply(self, what):
        if what == "hang up":
            self.close_connection = True
            return
        status, body, headers = what if isinstance(what, tuple) else (200, what, {})
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", "content-length": len(data), **headers}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)
        if int(headers["content-length"]) > len(data):
            self.close_connection = True  # a body that is cut off


@contextmanager
def running_stub():
    with Stub() as stub:
        threading.Thread(target=stub.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield stub
        finally:
            stub.shutdown()
