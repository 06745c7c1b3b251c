// TF_CONFIG is parsed as TensorFlow parses it, and mistakes are reported with their location.
#include "cluster/config/tf_config.hpp"
#include "cluster/config/strategy_variable.hpp"

#include "cluster/net/quote.hpp"

#include "cluster/config/json_text.hpp"
#include "core/random.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

const std::string two_workers = R"("cluster": {"worker": ["a:5000", "b:5001"]})";

/// TF_CONFIG with this cluster and task, which are JSON texts.
std::string config(const std::string& cluster, const std::string& task) {
  return R"({"cluster": )" + cluster + R"(, "task": )" + task + "}";
}

std::string worker(const std::string& index) { return R"({"type": "worker", "index": )" + index + "}"; }

/// A cluster in one line: "worker 0 a:5000, worker 1 b:5001; rank 1".
std::string summary_of(const ClusterSpec& spec) {
  if (spec.tasks.empty()) return spec.rank ? "a rank without tasks" : "alone";
  std::string text;
  for (const Task& task : spec.tasks) {
    text += (text.empty() ? "" : ", ") + task.name() + " " + task.address.to_string();
  }
  return text + "; rank " + (spec.rank ? std::to_string(*spec.rank) : "none");
}

struct Accepted {
  std::string text;
  std::string summary;
};

struct Refused {
  std::string text;
  std::vector<std::string> words;
};

std::string message_of(const std::string& text) {
  try {
    return "accepted: " + summary_of(parse_tf_config(text));
  } catch (const UsageError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("TF_CONFIG values that TensorFlow accepts mean the same") {
  const std::vector<Accepted> cases{
      // no cluster
      {"", "alone"},
      {"{}", "alone"},
      {" { } ", "alone"},
      {R"({"cluster": {}})", "alone"},
      {R"({"task": {"type": "worker", "index": 7}})", "alone"},
      {R"({"cluster": {}, "task": {"type": "ps", "index": 0}})", "alone"},
      {R"({"environment": "cloud", "rpc_layer": "grpc"})", "alone"},
      // ranks
      {config(R"({"worker": ["a:5000"]})", worker("0")), "worker 0 a:5000; rank 0"},
      {config(R"({"worker": ["a:5000", "b:5001"]})", worker("1")), "worker 0 a:5000, worker 1 b:5001; rank 1"},
      {config(R"({"worker": ["a:1", "b:1"], "chief": ["c:1"]})", worker("1")),
       "chief 0 c:1, worker 0 a:1, worker 1 b:1; rank 2"},
      {config(R"({"worker": ["a:1"], "chief": ["c:1"]})", R"({"type": "chief", "index": 0})"),
       "chief 0 c:1, worker 0 a:1; rank 0"},
      {config(R"({"worker": ["a:1"], "master": ["c:1"]})", R"({"type": "master", "index": 0})"),
       "master 0 c:1, worker 0 a:1; rank 0"},
      {config(R"({"chief": ["c:1"]})", R"({"type": "chief", "index": 0})"), "chief 0 c:1; rank 0"},
      {config(R"({"worker": ["a:1"], "chief": [], "master": []})", worker("0")), "worker 0 a:1; rank 0"},
      {config(R"({"worker": ["a:1", "b:1"], "ps": ["p:1"], "evaluator": ["e:1"]})", worker("1")),
       "worker 0 a:1, worker 1 b:1; rank 1"},
      // lists as objects, with gaps
      {config(R"({"worker": {"0": "a:1", "1": "b:1"}})", worker("1")), "worker 0 a:1, worker 1 b:1; rank 1"},
      {config(R"({"worker": {"10": "c:1", "9": "b:1", "2": "a:1"}})", worker("10")),
       "worker 2 a:1, worker 9 b:1, worker 10 c:1; rank 2"},
      {config(R"({"worker": {" +07 ": "a:1"}})", worker("7")), "worker 7 a:1; rank 0"},
      // Python's int()
      {config(R"({"worker": ["a:1", "b:1"]})", worker(R"("1")")), "worker 0 a:1, worker 1 b:1; rank 1"},
      {config(R"({"worker": ["a:1", "b:1"]})", worker(R"(" 01\n")")), "worker 0 a:1, worker 1 b:1; rank 1"},
      {config(R"({"worker": ["a:1", "b:1"]})", worker(R"("+1")")), "worker 0 a:1, worker 1 b:1; rank 1"},
      {config(R"({"worker": ["a:1", "b:1"]})", worker("0.9")), "worker 0 a:1, worker 1 b:1; rank 0"},
      {config(R"({"worker": ["a:1", "b:1"]})", worker("1.9")), "worker 0 a:1, worker 1 b:1; rank 1"},
      {config(R"({"worker": ["a:1", "b:1"]})", worker("-0.5")), "worker 0 a:1, worker 1 b:1; rank 0"},
      {config(R"({"worker": ["a:1", "b:1"]})", worker("1e0")), "worker 0 a:1, worker 1 b:1; rank 1"},
      // other keys
      {R"({"rpc_layer": 7, "session_master": [], "x": {"y": null}, "task": {"type": "worker", "index": 0, "z": 1}, )" +
           two_workers + "}",
       "worker 0 a:5000, worker 1 b:5001; rank 0"},
      // addresses
      {config(R"({"worker": ["10.0.0.1:1", "[fd00::7]:65535", "tf_worker-1.ns.svc.cluster.local.:80"]})", worker("1")),
       "worker 0 10.0.0.1:1, worker 1 [fd00::7]:65535, worker 2 tf_worker-1.ns.svc.cluster.local.:80; rank 1"},
      {config(R"({"worker": ["[fe80::1%eth0]:5000", "a:5000", "a:5001"]})", worker("2")),
       "worker 0 [fe80::1%eth0]:5000, worker 1 a:5000, worker 2 a:5001; rank 2"},
  };
  for (const Accepted& one : cases) {
    CAPTURE(one.text);
    const ClusterSpec spec = parse_tf_config(one.text);
    CHECK(summary_of(spec) == one.summary);
    CHECK(spec.is_chief() == (spec.rank.value_or(0) == 0));
    CHECK(spec.workers() == std::max<std::size_t>(1, spec.tasks.size()));
  }
}

TEST_CASE("a byte order mark, as some editors write it, is no part of TF_CONFIG") {
  CHECK(message_of("\xEF\xBB\xBF{" + two_workers + R"(, "task": {"type": "worker", "index": 1}})") ==
        "accepted: worker 0 a:5000, worker 1 b:5001; rank 1");
}

TEST_CASE("every mistake is rejected with its location") {
  const std::string list = R"({"worker": ["a:5000", "b:5001"]})";
  const auto address = [](const std::string& text) {
    return config(R"({"worker": [")" + text + R"("]})", worker("0"));
  };
  const std::vector<Refused> cases{
      // invalid JSON
      {" ", {"not valid JSON", "ends too early"}},
      {"worker", {"not valid JSON", "line 1, column 1", "'worker'"}},
      {R"({"cluster": {"worker": ["a:1" "b:1"]}})", {"not valid JSON", "line 1, column", R"("b:1")"}},
      {"{\n  \"task\": 1\n  \"cluster\": 2}", {"not valid JSON", "line 3", "\"cluster\""}},
      {"{'cluster': {}}", {"not valid JSON", "double quotes", "'{'"}},
      {R"({"cluster": {"worker": ["a:1")", {"not valid JSON", "ends too early"}},
      {R"({"cluster": {"worker: []}})", {"not valid JSON", "ends too early"}},
      {R"({"cluster": {}} x)", {"not valid JSON", "column 17"}},
      {R"({"cluster": {,}})", {"not valid JSON", "{,}"}},
      {R"({"cluster": [1,,]})", {"not valid JSON"}},
      {R"({"task": {"index": NaN}})", {"not valid JSON", "NaN"}},
      {R"({"task": {"index": 1e999}})", {"number", "too large", "'1e999"}},
      {"{\"a\": \"\xff\"}", {"not valid JSON"}},
      {std::string("{\0}", 3), {"not valid JSON"}},
      // the wrong kind of value
      {"null", {"TF_CONFIG is null", "object"}},
      {"[]", {"TF_CONFIG is a list"}},
      {R"("{}")", {"TF_CONFIG is '{}'"}},
      {R"({"cluster": null})", {"cluster is null"}},
      {R"({"cluster": ["a:1"]})", {"cluster is a list", "object"}},
      {config(R"({"worker": "a:1,b:1"})", worker("0")), {"cluster.worker is 'a:1,b:1'", "list"}},
      {config(R"({"worker": 2})", worker("0")), {"cluster.worker is 2", "list"}},
      {config(R"({"worker": ["a:1", 5000]})", worker("0")), {"cluster.worker[1] is 5000", "host:port"}},
      {config(R"({"worker": [["a:1"]]})", worker("0")), {"cluster.worker[0] is a list"}},
      {config(R"({"worker": {"0": {"a": 1}}})", worker("0")), {"cluster.worker['0'] is an object"}},
      {config(list, "1"), {"task is 1", "object"}},
      {config(list, "null"), {"task is null"}},
      // keys that are not indices
      {config(R"({"worker": {"one": "a:1"}})", worker("0")), {"cluster.worker's key is 'one'", "whole number"}},
      {config(R"({"worker": {"-1": "a:1"}})", worker("0")), {"'-1'", "at least 0"}},
      {config(R"({"worker": {"0.5": "a:1"}})", worker("0")), {"'0.5'"}},
      {config(R"({"worker": {"1": "a:1", "01": "b:1"}})", worker("1")), {"index 1 twice"}},
      // tasks
      {"{" + two_workers + "}", {"no task"}},
      {config(list, "{}"), {"task has no type"}},
      {config(list, R"({"type": "worker"})"), {"task has no index"}},
      {config(list, R"({"index": 0})"), {"task has no type"}},
      {config(list, worker("2")), {"task is worker 2", "2 of them, 0 to 1"}},
      {config(R"({"worker": ["a:1"]})", worker("1")), {"task is worker 1", "only worker 0"}},
      {config(R"({"worker": []})", worker("0")), {"task is worker 0", "no worker"}},
      {config(R"({"worker": {"0": "a:1", "2": "b:1"}})", worker("1")), {"task is worker 1", "2 of them, 0 to 2"}},
      {config(list, R"({"type": "chief", "index": 0})"), {"task is chief 0", "no chief"}},
      {config(list, worker("-1")), {"task.index is -1", "at least 0"}},
      {config(list, worker(R"("-1")")), {"task.index is '-1'"}},
      {config(list, worker(R"("abc")")), {"task.index is 'abc'", "whole number"}},
      {config(list, worker(R"("0.9")")), {"task.index is '0.9'"}},
      {config(list, worker(R"("+-1")")), {"task.index is '+-1'"}},
      {config(list, worker(R"("")")), {"task.index is ''"}},
      {config(list, worker("null")), {"task.index is null"}},
      {config(list, worker("[0]")), {"task.index is a list"}},
      {config(list, worker("99999999999999999999")), {"task.index is 1e+20"}},
      {config(list, worker("1e300")), {"task.index is 1e+300"}},
      {config(list, worker("-1e300")), {"task.index is -1e+300"}},
      {config(list, R"({"type": "Worker", "index": 0})"), {"type 'Worker'", "unknown"}},
      {config(list, R"({"type": 3, "index": 0})"), {"type '3'", "unknown"}},
      {config(list, R"({"type": null, "index": 0})"), {"type 'null'", "unknown"}},
      {config(list, R"({"type": "ps", "index": 0})"), {"'ps'", "not supported"}},
      {config(R"({"worker": ["a:1"], "ps": ["p:1"]})", R"({"type": "ps", "index": 0})"), {"'ps'", "not supported"}},
      {config(list, R"({"type": "evaluator", "index": 0})"), {"'evaluator'", "lockstep evaluate --follow"}},
      // clusters
      {config(R"({"workers": ["a:1"]})", worker("0")), {"'workers'", "unknown"}},
      {config(R"({"worker": ["a:1"], "chief": ["c:1", "d:1"]})", worker("0")), {"cluster.chief lists 2", "'d:1'"}},
      {config(R"({"worker": ["a:1"], "master": ["c:1", "d:1"]})", worker("0")), {"cluster.master lists 2"}},
      {config(R"({"worker": ["a:1"], "evaluator": ["c:1", "d:1"]})", worker("0")), {"cluster.evaluator lists 2"}},
      {config(R"({"chief": ["a:1"], "master": ["c:1"]})", worker("0")), {"both a chief ('a:1') and a master ('c:1')"}},
      {config(R"({"worker": ["a:1", "b:1", "A:1"]})", worker("0")), {"worker 0 and worker 2", "'A:1'"}},
      {config(R"({"worker": ["a:1"], "chief": ["a:1"]})", worker("0")), {"chief 0 and worker 0", "'a:1'"}},
      {config(R"({"worker": ["a:1"], "ps": ["a:1"]})", worker("0")), {"ps 0 and worker 0"}},
      // addresses
      {address("a"), {"cluster.worker[0] is 'a'", "no port"}},
      {address(""), {"''", "no port"}},
      {address("a:"), {"'a:'", "port ''"}},
      {address("a:0"), {"port '0'", "1 to 65535"}},
      {address("a:65536"), {"port '65536'"}},
      {address("a:99999999999999999999"), {"port '99999999999999999999'"}},
      {address("a:-1"), {"port '-1'"}},
      {address("a:+1"), {"port '+1'"}},
      {address("a:5000 "), {"port '5000 '"}},
      {address("a:http"), {"port 'http'"}},
      {address("a:5000/"), {"port '5000/'"}},
      {address(":5000"), {"no host"}},
      {address("a b:5000"), {"host 'a b'"}},
      {address("grpc://a:5000"), {"host 'grpc://a'"}},
      {address("{{ name }}-0:5000"), {"host '{{ name }}-0'"}},
      {address("w\u00f6rker:5000"), {"host 'wörker'"}},
      {address("a\\u0000b:5000"), {"host 'a?b'"}},
      {address("::1:5000"), {"'::1:5000'", "brackets"}},
      {address("fd00::7"), {"'fd00::7'", "brackets"}},
      {address("fd00::abcd"), {"brackets"}},
      {address("[::1]"), {"'[::1]'", "no port"}},
      {address("[::1]5000"), {"port"}},
      {address("[a]:5000"), {"IPv6"}},
      {address("[::1:5000"), {"IPv6"}},
      {address("[]:5000"), {"IPv6"}},
      {address("[::1%]:5000"), {"IPv6"}},
      {address(std::string(254, 'a') + ":5000"), {"aaa...'", "253"}},
  };
  for (const Refused& one : cases) {
    CAPTURE(one.text);
    const std::string message = message_of(one.text);
    CAPTURE(message);
    CHECK(message.starts_with("TF_CONFIG"));
    CHECK(message.size() < 400);
    CHECK(message.find('\n') == std::string::npos);
    for (const std::string& word : one.words) {
      CAPTURE(word);
      CHECK(message.find(word) != std::string::npos);
    }
  }
}

TEST_CASE("trailing commas are accepted with a warning") {
  const std::string text = R"({"cluster": {"worker": ["a:1", "b:1", ], }, "task": {"type": "worker", "index": 1,},
  })";
  const ClusterSpec spec = parse_tf_config(text);
  CHECK(summary_of(spec) == "worker 0 a:1, worker 1 b:1; rank 1");
  REQUIRE(spec.warnings.size() == 1);
  CHECK(spec.warnings[0].find("comma") != std::string::npos);
  CHECK(parse_tf_config(config(R"({"worker": ["a:1"]})", worker("0"))).warnings.empty());

  CHECK(without_trailing_commas(R"(["a,]", "\",]", "\\",])") == R"(["a,]", "\",]", "\\" ])");
  for (const std::string other : {"[,]", "{,}", "[1,,]", ",]", "[:,]", "[1,2]", "", "\"a,]", "\"\\", "[1,"}) {
    CAPTURE(other);
    CHECK((other == "[1,,]" || without_trailing_commas(other) == other));
    CHECK(without_trailing_commas(other).size() == other.size());
  }
  // a mistake beside the commas is reported at its location
  const std::string both = R"({"cluster": {"worker": ["a:1",] "chief": []}})";
  CHECK(message_of(both).find("\"chief\"") != std::string::npos);
}

TEST_CASE("parameter servers without a job of them cause a warning") {
  const ClusterSpec spec =
      parse_tf_config(config(R"({"worker": ["a:1"], "ps": ["p:1"], "evaluator": ["e:1"]})", worker("0")));
  REQUIRE(spec.warnings.size() == 1);  // an evaluator belongs beside any job
  CHECK(spec.warnings[0].find("'ps'") != std::string::npos);
}

TEST_CASE("the size of TF_CONFIG is bounded") {
  const auto padded = [](std::size_t bytes) { return "{" + std::string(bytes - 2, ' ') + "}"; };
  CHECK(summary_of(parse_tf_config(padded(std::size_t{1} << 20U))) == "alone");
  CHECK(message_of(padded((std::size_t{1} << 20U) + 1)).find("1048577 bytes") != std::string::npos);

  const auto many = [](int first, int count) {
    std::string list;
    for (int i = 0; i < count; ++i) list += (i > 0 ? ",\"" : "\"") + std::to_string(first + i) + ":1\"";
    return "[" + list + "]";
  };
  const std::string most = config(R"({"worker":)" + many(0, 70'000) + "}", worker("69999"));
  REQUIRE(most.size() < std::size_t{1} << 20U);
  CHECK(parse_tf_config(most).rank == 69'999U);
  // Only tasks without addresses fit more than the maximum number of tasks into a megabyte.
  std::string nothings = "\"\"";
  for (int i = 0; i < 100'000; ++i) nothings += ",\"\"";
  const std::string message = message_of(config(R"({"worker":[)" + nothings + "]}", worker("0")));
  CHECK(message.find("100001 tasks") != std::string::npos);

  // The deepest possible nesting must not overflow the stack.
  const std::string deep(std::size_t{1} << 19U, '[');
  CHECK(message_of(deep + std::string(deep.size(), ']')).find("is a list") != std::string::npos);
  CHECK(message_of(deep).find("ends too early") != std::string::npos);
}

TEST_CASE("TF_CONFIG is read from the environment, else there is one process") {
  CHECK(summary_of(read_cluster_spec({})) == "alone");
  CHECK(read_cluster_spec({}).is_chief());
  CHECK(summary_of(
            read_cluster_spec({{"TF_CONFIG", "{" + two_workers + R"(, "task": {"type": "worker", "index": 1}})"}})) ==
        "worker 0 a:5000, worker 1 b:5001; rank 1");
  CHECK_THROWS_AS(read_cluster_spec({{"TF_CONFIG", "{"}}), UsageError);
}

TEST_CASE("the digest depends only on the tasks in order") {
  const auto digest = [](const std::string& cluster, const std::string& task) {
    return parse_tf_config(config(cluster, task)).digest().to_string();
  };
  const std::string base = digest(R"({"worker": ["a:1", "b:1"]})", worker("0"));
  CHECK(base == digest(R"({"worker": ["a:1", "b:1"]})", worker("1")));
  CHECK(base == digest(R"({"worker": {"1": "b:1", "0": "A:1"}, "ps": ["p:1"]})", worker("1")));
  for (const char* other :
       {R"({"worker": ["b:1", "a:1"]})", R"({"worker": ["a:1", "b:2"]})", R"({"worker": ["a:1", "b:1", "c:1"]})",
        R"({"worker": ["a:1", "bb:1"]})", R"({"worker": {"0": "a:1", "2": "b:1"}})",
        R"({"chief": ["a:1"], "worker": ["b:1"]})", R"({"worker": ["a:1"]})"}) {
    CAPTURE(other);
    CHECK(digest(other, worker("0")) != base);
  }
}

TEST_CASE("mutated values are parsed or rejected", "[mutation]") {
  constexpr std::uint64_t seed = 20270114;
  constexpr int count = 20'000;
  const std::string valid =
      config(R"({"worker": {"0": "a:5000", "2": "[::1]:5001"}, "chief": ["c:1",]})", worker("\"2\""));
  const std::string telling = "[]{}:,\"'\\ 0129-.ew%\xff\n";
  REQUIRE(parse_tf_config(valid).workers() == 3);
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    RandomStream random(seed, RandomPurpose::test, static_cast<std::uint64_t>(i));
    std::string text = valid;
    for (std::uint32_t changes = 1 + random.below(6); changes > 0 && !text.empty(); --changes) {
      const std::size_t at = random.below(static_cast<std::uint32_t>(text.size()));
      const char character = telling[random.below(static_cast<std::uint32_t>(telling.size()))];
      switch (random.below(4)) {
        case 0: text[at] = character; break;
        case 1: text.insert(at, 1, character); break;
        case 2: text.erase(at, 1 + random.below(8)); break;
        default: text.insert(at, text.substr(random.below(static_cast<std::uint32_t>(text.size())), 12)); break;
      }
    }
    try {
      const ClusterSpec spec = parse_tf_config(text);
      REQUIRE(spec.rank.has_value() == !spec.tasks.empty());
      REQUIRE((!spec.rank || *spec.rank < spec.tasks.size()));
    } catch (const UsageError&) {
      ++refused;
    } catch (const std::exception& error) {
      FAIL("mutation " << i << ", seed " << seed << ": " << error.what() << "\n" << text);
    }
  }
  std::cout << "TF_CONFIG: " << refused << " of " << count << " mutated values refused, seed " << seed << "\n";
  CHECK(refused > count / 2);
  CHECK(refused < count);
}

TEST_CASE("indices are read as Python's int() reads them") {
  const auto index_of = [](const std::string& index) {
    const ClusterSpec spec = parse_tf_config(
        R"({"cluster": {"worker": {"1": "a:1", "10": "b:1"}}, "task": {"type": "worker", "index": )" + index + "}}");
    return spec.tasks.at(spec.rank.value()).index;
  };
  CHECK(index_of("true") == 1);
  CHECK(index_of(R"("1_0")") == 10);
  CHECK(index_of(R"(" +10 ")") == 10);
  for (const char* wrong : {R"("_10")", R"("10_")", R"("1__0")", R"("\u0661")"})
    CHECK_THROWS_AS(index_of(wrong), UsageError);
}

TEST_CASE("a key that looks like the cluster is named, because each task would train alone") {
  for (const std::string key : {"CLUSTER", "sparseCluster", "Cluster"}) {
    const ClusterSpec spec =
        parse_tf_config("{\"" + key + R"(": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})");
    CHECK(spec.workers() == 1);
    REQUIRE(spec.warnings.size() == 1);
    CHECK(spec.warnings[0].find("TF_CONFIG has the key '" + key + "' but no cluster") == 0);
  }
  CHECK(parse_tf_config(R"({"environment": "cloud"})").warnings.empty());
}

TEST_CASE("messages quote text that is not ASCII, and no half characters") {
  CHECK(quote("b\u00fccher") == "'b\u00fccher'");
  CHECK(quote("a\x1B[2J\nb\xC2\x9B") ==
        "'a?[2J b?"
        "?'");
  CHECK(quote(std::string(59, 'x') + "\u00fc").starts_with("'" + std::string(59, 'x') + "...'"));
}

TEST_CASE("parameter servers take part in jobs that have them") {
  const std::string cluster = R"({"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1", "q:2"]})";
  const auto parse = [&](const std::string& task) {
    return parse_tf_config(config(cluster, task), ParameterServers::take_part);
  };
  const ClusterSpec worker = parse(R"({"type": "worker", "index": 0})");
  CHECK(worker.rank == 1U);
  CHECK_FALSE(worker.server);
  CHECK(worker.servers.size() == 2);
  CHECK(worker.warnings.empty());
  const ClusterSpec server = parse(R"({"type": "ps", "index": 1})");
  CHECK_FALSE(server.rank);
  CHECK(server.server == 1U);
  CHECK_FALSE(server.is_chief());
  CHECK(server.own_task().name() == "ps 1");
  CHECK(server.digest().value() == worker.digest().value());
  CHECK(server.digest().value() !=
        parse_tf_config(config(cluster, R"({"type": "worker", "index": 0})")).digest().value());
  const ClusterSpec again = parse_tf_config(to_tf_config(server), ParameterServers::take_part);
  CHECK(again == server);
  CHECK(read_cluster_spec({{"LOCKSTEP_STRATEGY", "parameter-server"}, {"TF_CONFIG", to_tf_config(server)}}) == server);
  CHECK_THROWS_AS(parse_tf_config(config(R"({"worker": ["w:1"]})", R"({"type": "worker", "index": 0})"),
                                  ParameterServers::take_part),
                  UsageError);
  CHECK_THROWS_AS(
      parse_tf_config(config(R"({"ps": ["w:1"]})", R"({"type": "ps", "index": 0})"), ParameterServers::take_part),
      UsageError);
}

TEST_CASE("a program's --strategy tells its launcher") {
  Environment environment;
  take_strategy(std::vector<std::string>{"program", "--epochs", "3"}, environment);
  CHECK_FALSE(has_parameter_servers(environment));
  take_strategy(std::vector<std::string>{"program", "--strategy", "parameter-server"}, environment);
  CHECK(has_parameter_servers(environment));
  take_strategy(std::vector<std::string>{"program", "--strategy=mirrored"}, environment);
  CHECK_FALSE(has_parameter_servers(environment));
}
