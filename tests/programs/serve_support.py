"""A running `lockstep serve`, and requests to it."""

import http.client
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model_file_support import ModelFileTest
from support import Running, eventually, program


def ask(port: int, body: Any, path: str = "/v1/models/model:predict") -> tuple[int, Any]:
    """The status and the JSON of a request for predictions."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, body if isinstance(body, (str, bytes)) else json.dumps(body))
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def rows(images: bytes) -> list[list[list[float]]]:
    scaled = [round(value / 255, 6) for value in images]
    return [[scaled[784 * i + 28 * row:784 * i + 28 * row + 28] for row in range(28)] for i in range(len(images) // 784)]


class ServerTest(ModelFileTest):
    def serve(self, *options: object, under: Sequence[str] = ()) -> tuple[Running, int]:
        """Starts a server on a free port, by the command `under`, and returns it when it listens."""
        command = [*under, program("lockstep"), "serve", "--rest-api-port", "0", *map(str, options)]
        server = Running(command, self.cwd, {})
        self.addCleanup(self.stop, server)
        self.assertTrue(eventually(lambda: "listening on port" in server.stderr or server.process.poll() is not None))
        found = re.search(r"listening on port (\d+)", server.stderr)
        assert found is not None, server.end()
        return server, int(found[1])

    def stop(self, server: Running) -> None:
        if server.process.returncode is None:
            server.process.terminate()
            self.assertEqual(server.end().code, 0)

    def memory_of(self, server: Running) -> int:
        """In kB."""
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
        assert found is not None
        return int(found[1])

    def served(self, model: Path) -> Path:
        """A directory with this model."""
        folder = self.scratch / "served"
        folder.mkdir(exist_ok=True)
        shutil.copy(model, folder / ".copy")
        (folder / ".copy").rename(folder / f"model{model.suffix}")
        return folder
