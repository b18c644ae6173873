#!/usr/bin/env python3
"""A hub for tests: hub.py FOLDER FILE CERT KEY writes its two ports ("tls plain") to FOLDER/ports and serves FILE.

    /org/repo/resolve/main/model.gguf    redirects to /storage, as the real hub does, and states the digest
    /org/gated/resolve/main/model.gguf   the same, for "Bearer hf_good" only
    /org/down/resolve/main/model.gguf    redirects from https to plain http
    /org/meta/resolve/main/model.gguf    redirects to the link-local address of cloud metadata
    /org/busy/resolve/main/model.gguf    429 with Retry-After, then as repo
    /org/drip/resolve/main/model.gguf    as repo, but the storage sends slowly
    /org/wrong/resolve/main/model.gguf   as repo, with another digest
    /storage, /drip                      the file, with ranges and an entity tag

Every request is a line in FOLDER/log: path, range or "-", "auth" or "-".
"""

import hashlib
import http.server
import pathlib
import re
import ssl
import sys
import threading
import time

FOLDER, FILE, CERT, KEY = (pathlib.Path(name) for name in sys.argv[1:5])
CONTENT = FILE.read_bytes()
DIGEST = hashlib.sha256(CONTENT).hexdigest()
ports = {}
busy_until = {}
write_lock = threading.Lock()


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """The log is our own."""

    def answer(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, pause):
        first = 0
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        tag = f'"{DIGEST[:16]}"'
        if match and self.headers.get("If-Range", tag) == tag:
            first = int(match[1])
        if first >= len(CONTENT):
            self.answer(416, {"Content-Range": f"bytes */{len(CONTENT)}"})
            return
        self.send_response(206 if first else 200)
        self.send_header("ETag", tag)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(CONTENT) - first))
        self.end_headers()
        for at in range(first, len(CONTENT), 65536):
            self.wfile.write(CONTENT[at:at + 65536])
            time.sleep(pause)

    def do_GET(self):
        with write_lock, open(FOLDER / "log", "a", encoding="utf-8") as log:
            print(self.path, self.headers.get("Range", "-"), "auth" if "Authorization" in self.headers else "-", file=log)
        try:
            self.route()
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True

    def route(self):
        if self.path in ("/storage", "/drip"):
            self.send_file(0.02 if self.path == "/drip" else 0)
            return
        match = re.fullmatch(r"/org/(\w+)/resolve/main/model\.gguf", self.path)
        kind = match[1] if match else ""
        linked = {"X-Linked-Etag": f'"{DIGEST}"', "X-Linked-Size": str(len(CONTENT))}
        if kind == "gated" and self.headers.get("Authorization") != "Bearer hf_good":
            self.answer(401, {"X-Error-Message": "Access to model org/gated is restricted"})
        elif kind == "busy" and busy_until.setdefault("busy", 1) > 0:
            busy_until["busy"] -= 1
            self.answer(429, {"Retry-After": "1"})
        elif kind == "down":
            self.answer(302, {"Location": f"http://localhost:{ports['plain']}/storage"})
        elif kind == "meta":
            self.answer(302, {"Location": "https://169.254.169.254/latest/meta-data/"})
        elif kind == "drip":
            self.answer(302, {"Location": "/drip", **linked})
        elif kind == "wrong":
            self.answer(302, {"Location": "/storage", "X-Linked-Etag": f'"{"0" * 64}"'})
        elif kind in ("repo", "gated", "busy"):
            self.answer(302, {"Location": f"https://localhost:{ports['storage']}/storage", **linked})
        else:
            self.answer(404, {"X-Error-Message": "Repository not found"})


def start(tls):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads = True
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERT, KEY)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


ports["tls"] = start(True)
ports["storage"] = start(True)
ports["plain"] = start(False)
(FOLDER / "ports.new").write_text(f"{ports['tls']}\n")
(FOLDER / "ports.new").rename(FOLDER / "ports")
threading.Event().wait()
