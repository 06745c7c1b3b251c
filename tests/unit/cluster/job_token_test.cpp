// Where a job's token comes from, and what it proves.
#include "cluster/job_token.hpp"

#include "cluster/socket.hpp"
#include "lockstep/core/error.hpp"
#include "support/catch.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

using namespace lockstep;

TEST_CASE("tokens come from the environment or a file, and prove only themselves") {
  CHECK_FALSE(JobToken::of({}, "").exists());
  const JobToken token = JobToken::of({{"LOCKSTEP_JOB_TOKEN", "abc"}}, "");
  REQUIRE(token.exists());
  // As `printf hello | openssl dgst -sha256 -hmac abc` says.
  const std::string proof = token.prove("hello");
  CHECK(proof ==
        "\xf3\x16\x6a\x3a\x40\x45\x99\xd2\x04\x6e\xd2\xaa\xe4\x79\xb3\x7d"
        "\x54\xb5\x1d\x2e\x85\x25\x9c\x9e\x31\x40\x42\x75\x3b\xe7\xd8\x13");
  CHECK(token.checks(proof, "hello"));
  CHECK_FALSE(token.checks(proof, "hellO"));
  CHECK_FALSE(token.checks(proof.substr(0, 31), "hello"));
  CHECK_FALSE(token.checks("", "hello"));
  CHECK_FALSE(JobToken("abd").checks(proof, "hello"));
  CHECK(unpredictable_bytes(32) != unpredictable_bytes(32));
  std::array<char, 32> path{"/tmp/lockstep_token_XXXXXX"};
  const Socket file(mkstemp(path.data()));
  const std::string name = path.data();
  CHECK_THROWS_AS(JobToken::of({}, name), UsageError);
  std::ofstream(name) << "abc\r\nsecond line\n";
  CHECK(JobToken::of({{"LOCKSTEP_JOB_TOKEN", "other"}}, name).checks(proof, "hello"));
  (void)unlink(name.c_str());
  CHECK_THROWS_AS(JobToken::of({}, name), UsageError);
}
