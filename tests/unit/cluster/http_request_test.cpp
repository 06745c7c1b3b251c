// The parser of the status port: complete, invalid and incomplete requests.
#include "cluster/status/http_request.hpp"

#include "core/random.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>

using namespace lockstep;

TEST_CASE("a request is parsed once it is complete") {
  const std::string whole = "GET /metrics?name[]=x HTTP/1.1\r\nHost: a:1\r\nAccept: */*\r\n\r\n";
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(read_http_request(whole.substr(0, size)));
  }
  const std::optional<HttpRequest> request = read_http_request(whole);
  REQUIRE(request);
  CHECK(request->method == "GET");
  CHECK(request->path == "/metrics");
  CHECK(read_http_request("HEAD / HTTP/1.0\r\n\r\n")->path == "/");
  CHECK(read_http_request("DELETE /healthz HTTP/1.1\r\n\r\nand more")->method == "DELETE");
}

TEST_CASE("an invalid request is rejected as early as possible") {
  for (const char* bytes :
       {"\x16\x03\x01", "get / HTTP/1.1", "LSTP\x01", " GET /", "\r\n", "ABCDEFGHIJKLMNOPQ", "GET\r\n",
        "GET / HTTP/2\r\n", "GET  HTTP/1.1\r\n", "GET /\r\n", "GET http://a/ HTTP/1.1\r\n", "GET /a b HTTP/1.1\r\n",
        "GET /\x01 HTTP/1.1\r\n", "GET /\xC3\xA4 HTTP/1.1\r\n", "GET / HTTP/1.1\n\n\r\n", "SSH-2.0-OpenSSH_9.2p1\r\n",
        "GET /\tHTTP/1.1\r\n"}) {
    CAPTURE(bytes);
    CHECK_THROWS_AS(read_http_request(bytes), DataError);
  }
  CHECK_THROWS_AS(read_http_request(std::string("GET /\0 HTTP/1.1\r\n", 17)), DataError);
}

TEST_CASE("a mutated request is parsed, rejected or incomplete") {
  const std::string whole = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
  RandomStream random(20270115, RandomPurpose::test, 3);
  int read = 0;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole;
    for (std::uint64_t changes = 1 + random.next() % 3; changes > 0; --changes) {
      const std::size_t at = random.next() % bytes.size();
      if (random.next() % 3 == 0) {
        bytes.erase(at, 1 + random.next() % 5);
      } else {
        bytes[at] = static_cast<char>(random.next());
      }
      if (bytes.empty()) bytes = whole;
    }
    try {
      const std::optional<HttpRequest> request = read_http_request(bytes);
      read += request ? 1 : 0;
      if (request) REQUIRE(request->path.front() == '/');
    } catch (const DataError&) {
      ++refused;
    }
  }
  CHECK(read > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("replies carry Content-Length and Connection: close") {
  const std::string reply = http_reply(200, "text/plain", "ok\n", false);
  CHECK(reply ==
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nCache-Control: no-store\r\n"
        "Connection: close\r\n\r\nok\n");
  CHECK(http_reply(200, "text/plain", "ok\n", true) == reply.substr(0, reply.size() - 3));
  CHECK(http_reply(405, "text/plain", "", false).find("\r\nAllow: GET, HEAD\r\n") != std::string::npos);
}
