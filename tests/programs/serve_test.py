"""`lockstep serve`: predictions over HTTP, a newer model, a damaged one, bad requests, many connections."""

import http.client
import json
import os
import re
import resource
import shutil
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import data_files
from model_file_support import description
from serve_support import ServerTest, ask, rows
from status_port import get, metrics
from support import DATA, TEMPORARY, USAGE, Running, count, eventually, program


class ServeTest(ServerTest):
    def test_predictions_are_those_of_predict(self) -> None:
        model = self.trained("first.keras")
        ended = self.use("predict", "--model", model, "--output", "expected.npy")
        self.assertEqual(ended.code, 0, str(ended))
        content = (self.cwd / "expected.npy").read_bytes()
        expected = struct.unpack("<400f", content[-1600:])
        server, port = self.serve("--model", model, "--model-name", "digits")
        self.assertEqual(get(port, "/healthz"), (200, "ok\n"))
        pictures = rows(data_files.digits(40, 1001)[0])
        for body in ({"instances": pictures}, {"inputs": pictures}, {"inputs": {"given": pictures}}):
            code, reply = ask(port, body, "/v1/models/digits:predict")
            self.assertEqual(code, 200, reply)
            (values,) = reply.values()
            for one, two in zip([value for row in values for value in row], expected, strict=True):
                self.assertAlmostEqual(one, two, places=3)
        code, reply = ask(port, {"instances": pictures[:1]}, "/v1/models/digits:predict")
        self.assertEqual((code, len(reply["predictions"])), (200, 1))
        self.assertEqual(metrics(port)['lockstep_serve_requests_total{code="200"}'], 4)
        shown = json.loads(get(port, "/model")[1])
        self.assertIn("test accuracy", shown["scores"])
        self.assertEqual((shown["name"], shown["file"], shown["pixel_scale"]), ("digits", "first.keras", 1))
        server.process.terminate()
        ended = server.end()
        self.assertEqual((ended.code, ended.errors), (0, []), str(ended))

    def test_an_exported_model_is_drawn_for_in_the_scale_of_its_evaluation(self) -> None:
        version = self.scratch / "exported" / "1"
        version.mkdir(parents=True)
        shutil.copy(self.trained("first.keras"), version / "model.keras")
        (version / "evaluation.json").write_text(json.dumps({"accuracy": 0.5, "input_scale": 1}))
        _, port = self.serve("--model", version.parent)
        self.assertTrue(eventually(lambda: get(port, "/healthz")[0] == 200))
        shown = json.loads(get(port, "/model")[1])
        self.assertEqual((shown["pixel_scale"], shown["scores"]), (255, {"test accuracy": 0.5}))

    def test_the_record_of_a_training_may_come_after_its_model(self) -> None:
        model = self.trained("first.keras")
        folder = self.scratch / "served"
        folder.mkdir()
        shutil.copy(model, folder)
        _, port = self.serve("--model", folder)
        self.assertTrue(eventually(lambda: get(port, "/healthz")[0] == 200))

        def scores() -> dict[str, float]:
            return json.loads(get(port, "/model")[1]).get("scores", {})

        self.assertEqual(scores(), {})
        shutil.copy(model.parent / "history.json", folder)
        self.assertTrue(eventually(lambda: "test accuracy" in scores(), 30))

    def test_a_newer_model_is_served_and_a_damaged_one_is_not(self) -> None:
        first, second = self.trained("first.h5"), self.trained("second.h5", "--seed", 7)
        folder = self.scratch / "later"
        server, port = self.serve("--model", folder)
        self.assertEqual(get(port, "/healthz"), (503, f"{folder} does not exist yet\n"))
        picture = {"instances": rows(data_files.digits(1, 5)[0])}
        self.assertEqual(ask(port, picture)[0], 503)
        self.served(first).rename(folder)
        self.assertTrue(eventually(lambda: get(port, "/healthz")[0] == 200))
        before = ask(port, picture)
        (folder / "model.h5").write_bytes(second.read_bytes()[:5000])
        self.assertTrue(eventually(lambda: "in service: " in get(port, "/healthz")[1]))
        self.assertIn("model.h5", get(port, "/healthz")[1])
        self.assertEqual((get(port, "/healthz")[0], ask(port, picture)), (200, before))
        shutil.copy(second, folder / "model.h5")
        self.assertTrue(eventually(lambda: get(port, "/healthz") == (200, "ok\n")))
        after = ask(port, picture)
        self.assertEqual(after[0], 200)
        self.assertNotEqual(before, after)
        self.assertEqual(server.stderr.count("in service: "), 1, server.stderr)
        self.assertEqual(metrics(port)["lockstep_serve_model_load_failures_total"], 1)
        (folder / "model.h5").rename(folder / "away")  # comes back as it was
        self.assertTrue(eventually(lambda: "holds no model yet" in get(port, "/healthz")[1]))
        self.assertEqual(ask(port, picture), after)
        (folder / "away").rename(folder / "model.h5")
        self.assertTrue(eventually(lambda: get(port, "/healthz") == (200, "ok\n")))
        self.assertEqual(metrics(port)["lockstep_serve_model_load_failures_total"], 1)

    def test_beside_damaged_newer_files_a_server_starts_with_the_newest_that_it_can_serve(self) -> None:
        whole = self.trained("first.h5").read_bytes()
        picture = {"instances": rows(data_files.digits(1, 5)[0])}

        def put(file: Path, content: bytes, age: float) -> None:
            file.parent.mkdir(parents=True, exist_ok=True)
            (file.parent / ".part").write_bytes(content)
            os.utime(file.parent / ".part", (time.time() - age,) * 2)
            (file.parent / ".part").rename(file)

        for names in (("a.h5", "b.h5", "c.h5"), ("1/m.h5", "2/m.h5", "3/m.h5")):
            folder = self.scratch / f"beside-{names[0][0]}"
            old, middle, new = (folder / name for name in names)
            put(old, whole, 30)
            put(middle, whole[:5000], 20)
            put(new, whole[:5000], 10)
            server, port = self.serve("--model", folder)
            code, health = get(port, "/healthz")
            self.assertEqual(code, 200, health)
            self.assertRegex(health, f"{new}.*; in service: {old} of version")
            self.assertEqual(ask(port, picture)[0], 200)

            def loads(port: int = port) -> tuple[float, float]:
                found = metrics(port)
                return found["lockstep_serve_model_loads_total"], found["lockstep_serve_model_load_failures_total"]

            self.assertEqual(loads(), (1, 2))
            put(middle, whole, 15)  # healthy now, and older than the newest
            self.assertTrue(eventually(lambda loads=loads: loads() == (2, 2)), loads())
            self.assertIn(f"; in service: {middle} of version", get(port, "/healthz")[1])
            middle.unlink()  # stays in service: the one before it is older
            put(new, b"other damage", 0)
            self.assertTrue(eventually(lambda loads=loads: loads() == (2, 3)), loads())
            new.unlink()
            self.assertTrue(eventually(lambda port=port: get(port, "/healthz") == (200, "ok\n")))
            self.assertEqual(loads(), (3, 3))
            self.assertEqual(server.stderr.count("; in service: "), 3, server.stderr)

    def test_no_request_fails_while_models_are_replaced(self) -> None:
        models = [self.trained("first.h5"), self.trained("second.h5", "--seed", 7)]
        folder = self.served(models[0])
        _, port = self.serve("--model", folder)
        picture = {"instances": rows(data_files.digits(1, 5)[0])}
        replies: list[tuple[int, str]] = []
        is_over = threading.Event()

        def keep_asking() -> None:
            while not is_over.is_set():
                code, reply = ask(port, picture)
                replies.append((code, json.dumps(reply)))

        clients = [threading.Thread(target=keep_asking) for _ in range(3)]
        for client in clients:
            client.start()
        self.assertTrue(eventually(lambda: len(replies) > 20))
        swaps = count(100)
        loads = "lockstep_serve_model_loads_total"
        for swap in range(1, swaps + 1):
            self.served(models[swap % 2])
            self.assertTrue(eventually(lambda swap=swap: metrics(port)[loads] == swap + 1), metrics(port))
        is_over.set()
        for client in clients:
            client.join()
        self.assertEqual({code for code, _ in replies}, {200})
        self.assertEqual(len({reply for _, reply in replies}), 2, "the replies are those of two models")

    def test_bad_requests_get_one_sentence(self) -> None:
        _, port = self.serve("--model", self.trained("first.h5"), "--max-body", 1)
        for code, body, says in (
            (400, "{", "the body is not JSON"),
            (400, {"instances": [[1, 2]]}, "has 2 values on an axis of 28"),
            (400, {"instances": [[["a"] * 28] * 28]}, "a string where a number is due"),
            (400, "[" * 100_000, "nested too deep at byte 6;"),
        ):
            found, reply = ask(port, body)
            self.assertEqual(found, code)
            self.assertIn(says, reply["error"])
        self.assertEqual(ask(port, "{}", "/v1/models/other:predict")[0], 404)
        self.assertEqual(ask(port, "{}", "/v1/models/model/../../../etc/passwd")[0], 404)
        predict = b"POST /v1/models/model:predict HTTP/1.1\r\nContent-Length: 2\r\n"
        encoded = b"POST /v1/models/model:predict HTTP/1.1\r\nTransfer-Encoding: "
        for raw, code, says in (
            (b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", 405, b"this path takes GET only"),
            (b"PUT /v1/models/model HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405, b"this path takes GET only"),
            (predict + b"content-length: 1\r\n\r\n{}", 400, b"several Content-Length headers"),
            (predict + b"Content-Encoding: gzip\r\n\r\n{}", 415, b"without Content-Encoding"),
            (predict + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, b"Bad Request"),
            (encoded + b"chunked\r\n\r\n0\r\n\r\n", 400, b"not JSON"),
            (encoded + b"gzip, chunked\r\n\r\n0\r\n\r\n", 501, b"a Transfer-Encoding other than chunked"),
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                client.sendall(raw)
                reply = client.recv(1000)
                self.assertEqual(int(reply.split()[1]), code, reply)
                self.assertIn(says, reply)
        for raw, code in ((b"nonsense\r\n\r\n", 400),
                          (b"POST /v1/models/model:predict HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413),
                          (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", 400)):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                with suppress(BrokenPipeError, ConnectionResetError):
                    client.sendall(raw)
                with suppress(ConnectionResetError):
                    reply = client.recv(100)
                    self.assertTrue(reply == b"" or int(reply.split()[1]) in (code, 413), (raw[:40], reply))
        body = json.dumps({"instances": rows(data_files.digits(20, 5)[0])}).encode()
        for _ in range(20):  # clients that go before they are answered
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(b"POST /v1/models/model:predict HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.assertEqual(get(port, "/healthz")[0], 200)
        self.assertEqual(ask(port, body)[0], 200)

    def test_a_number_out_of_range_fails_its_own_request_alone(self) -> None:
        looked_up = (("Embedding", {"input_dim": 256, "output_dim": 2}), ("Flatten", {}), ("Dense", {"units": 10}))
        encoded = (("Flatten", {}), ("CategoryEncoding", {"num_tokens": 256, "output_mode": "multi_hot"}),
                   ("Dense", {"units": 10}))  # which only the model finds
        for layers, says in ((looked_up, ("'given'", "256", "from 0 to 255")), (encoded, ("256", "from 0 to 255"))):
            self.plain.write_text(description(*layers))
            server, port = self.serve("--model", self.trained("first.keras"), "--max-delay", 1000)
            right = {"instances": [[[7] * 28] * 28]}
            wrong = {"instances": [[[7] * 28] * 27 + [[256] * 28]]}
            with ThreadPoolExecutor() as clients:
                replies = list(clients.map(lambda body, port=port: ask(port, body), (right, wrong, right)))
            self.assertEqual([code for code, _ in replies], [200, 400, 200], replies)
            for words in says:
                self.assertIn(words, replies[1][1]["error"])
            self.assertNotIn("from 0 to 255", server.stderr)

    def test_sigterm_answers_the_requests_that_wait(self) -> None:
        server, port = self.serve("--model", self.trained("first.h5"), "--max-delay", 1000)
        body = {"instances": rows(data_files.digits(1, 5)[0])}
        with ThreadPoolExecutor() as clients:
            waiting = [clients.submit(ask, port, body) for _ in range(2)]
            self.assertTrue(eventually(lambda: metrics(port)["lockstep_serve_waiting_examples"] == 2))
            server.process.terminate()
            self.assertEqual([each.result()[0] for each in waiting], [200, 200])
        self.assertEqual(server.end().code, 0)

    def test_head_is_answered_by_the_headers_of_get(self) -> None:
        _, port = self.serve("--model", self.trained("first.h5"))
        for path in ("/", "/healthz", "/v1/models/model/metadata", "/nothing"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            self.addCleanup(connection.close)
            connection.request("GET", path)
            reply = connection.getresponse()
            expected = reply.status, str(len(reply.read()))
            for _ in range(2):  # on the same connection, which a body would confuse
                connection.request("HEAD", path)
                reply = connection.getresponse()
                self.assertEqual((reply.status, reply.getheader("Content-Length")), expected)
                self.assertEqual(reply.read(), b"")

    def test_connections_that_say_nothing_hold_up_nobody(self) -> None:
        server, port = self.serve("--model", self.trained("first.h5"))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        many = min(10_050, hard - 200)
        silent = []
        self.addCleanup(lambda: [each.close() for each in silent])
        for _ in range(many):
            silent.append(socket.create_connection(("127.0.0.1", port)))
            if len(silent) % 2:
                silent[-1].sendall(b"POST /v1/models/model:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        self.assertEqual(ask(port, {"instances": rows(data_files.digits(1, 5)[0])})[0], 200)
        if many == 10_050:  # the longest waiting made room
            self.assertGreater(metrics(port)['lockstep_serve_connections_ended_total{reason="crowded"}'], 50)
            self.assertLessEqual(metrics(port)["lockstep_serve_connections"], 10_000)
        self.assertLess(self.memory_of(server), 400_000)

    def test_few_descriptors_are_enough(self) -> None:
        _, port = self.serve("--model", self.trained("first.h5"), under=["prlimit", "--nofile=150:150"])
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        self.addCleanup(lambda: [each.close() for each in silent])
        self.assertEqual(get(port, "/healthz")[0], 200)
        self.assertGreater(metrics(port)['lockstep_serve_connections_ended_total{reason="crowded"}'], 100)

    def test_a_launcher_does_not_take_a_waiting_server_for_a_stalled_one(self) -> None:
        launcher = [program("lockstep"), "launch", "--busy-timeout", "1", "--"]
        server, port = self.serve("--model", self.trained("first.h5"), under=launcher)
        time.sleep(4)
        self.assertEqual(get(port, "/healthz")[0], 200)
        self.assertNotIn("generation 1 ended", server.stderr)
        server.process.terminate()
        ended = server.end()
        self.assertEqual(ended.code, TEMPORARY, str(ended))

    def test_a_request_arrives_in_time_or_not_at_all(self) -> None:
        _, port = self.serve("--model", self.trained("first.h5"), "--request-timeout", 2)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(b"POST /v1/models/model:predict HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")
            with suppress(BrokenPipeError, ConnectionResetError):
                for _ in range(600):  # a byte now and then: never silent for long
                    client.sendall(b" ")
                    time.sleep(0.1)
                self.fail("a request that never ends was waited for")
        self.assertEqual(metrics(port)['lockstep_serve_connections_ended_total{reason="late"}'], 1)

    def test_unfinished_requests_hold_bounded_memory(self) -> None:
        server, port = self.serve("--model", self.trained("first.h5"), "--max-body", 16, "--max-received", 64)
        clients = []
        self.addCleanup(lambda: [each.close() for each in clients])
        for _ in range(40):  # 600 MiB
            clients.append(socket.create_connection(("127.0.0.1", port), timeout=30))
            with suppress(BrokenPipeError, ConnectionResetError):
                clients[-1].sendall(b"POST /v1/models/model:predict HTTP/1.1\r\nContent-Length: 16000000\r\n\r\n")
                clients[-1].sendall(b" " * 15_000_000)
        self.assertLess(self.memory_of(server), 300_000)
        self.assertGreater(metrics(port)['lockstep_serve_connections_ended_total{reason="memory"}'], 30)
        self.assertLessEqual(metrics(port)["lockstep_serve_received_bytes"], 64 << 20)

    def test_a_request_that_needs_too_much_memory_fails_alone(self) -> None:
        self.plain.write_text(description(("Flatten", {}), ("Dense", {"units": 1}), ("Dense", {"units": 20_000})))
        model = self.trained("wide.h5")
        picture = json.dumps([[0] * 28] * 28, separators=(",", ":"))

        def body(examples: int) -> str:
            return '{"instances":[' + ",".join([picture] * examples) + "]}"

        _, port = self.serve("--model", model)
        code, reply = ask(port, body(300))
        self.assertEqual(code, 413)
        self.assertIn("for 300 examples have 6000000 numbers, more than 4194304,", reply["error"])
        self.assertEqual(ask(port, body(200))[0], 200)
        server, port = self.serve("--model", model, "--max-body", 1024, under=["prlimit", f"--as={3 << 30}"])
        for large in (body(13_000), '{"instances":[' + "0," * 50_000_000 + "0]}"):  # 1 GB of predictions; a long body
            code, reply = ask(port, large)
            self.assertEqual(code, 503, reply)
            self.assertIn("too little memory for this request", reply["error"])
            self.assertEqual(get(port, "/healthz"), (200, "ok\n"))
            self.assertEqual(ask(port, body(1))[0], 200)
        self.assertNotIn("--global-batch-size", server.stderr)

    def test_a_client_has_so_many_requests_per_second(self) -> None:
        _, port = self.serve("--model", self.trained("first.h5"), "--max-rate", 0.001)
        body = {"instances": rows(data_files.digits(1, 5)[0])}
        self.assertEqual(ask(port, body)[0], 200)
        code, reply = ask(port, body)
        self.assertEqual(code, 429)
        self.assertIn("too many requests per second", reply["error"])
        self.assertEqual(get(port, "/healthz")[0], 200)

    def test_wrong_usage(self) -> None:
        self.data = self.scratch
        for options, code, says in (
            ((), USAGE, "needs --model PATH"),
            (("--model", "nowhere.keras"), USAGE, "nowhere.keras, which does not exist"),
            (("--model", "m", "--rest-api-port", 70000), USAGE, "--rest-api-port is '70000'"),
            (("--model", "m", "--model-name", "a/b"), USAGE, "--model-name is 'a/b'"),
            (("--model", "m", "--max-delay", -1), USAGE, "--max-delay is '-1'"),
        ):
            ended = Running([program("lockstep"), "serve", *map(str, options)], self.cwd, {}).end()
            self.assert_fails(ended, code, says)
        with socket.create_server(("", 0)) as taken:
            port = taken.getsockname()[1]
            ended = Running([program("lockstep"), "serve", "--model", "m", "--rest-api-port", str(port)], self.cwd, {}).end()
            self.assert_fails(ended, TEMPORARY, str(port), "--rest-api-port")

    def test_a_file_that_cannot_be_served_ends_the_server(self) -> None:
        """A directory may get another one: there the server waits."""
        folder = self.scratch / "damaged"
        folder.mkdir()
        model = folder / "model.h5"
        model.write_bytes(self.trained("whole.h5").read_bytes()[:5000])
        ended = Running([program("lockstep"), "serve", "--model", str(model), "--rest-api-port", "0"], self.cwd, {}).end()
        self.assert_fails(ended, DATA, str(model))
        _, port = self.serve("--model", folder)
        self.assertEqual(get(port, "/healthz")[0], 503)
        self.assertIn(str(model), get(port, "/healthz")[1])
