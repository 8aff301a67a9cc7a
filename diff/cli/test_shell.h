// The program run as its users run it, from a shell.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace shardproof::cli {

struct Run {
  int exit_code = -1;
  std::string out;  // stdout, or what the command line sends there
};

inline Run shell(const std::string& line) {
  Run run;
  std::FILE* const pipe = popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> bytes;
  while (const std::size_t got = std::fread(bytes.data(), 1, bytes.size(), pipe)) {
    run.out.append(bytes.data(), got);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) run.exit_code = WEXITSTATUS(status);
  return run;
}

inline Run shardproof(const std::string& arguments) {
  return shell(SHARDPROOF_PROGRAM " " + arguments);
}

// What it says on stderr; nothing may stand on stdout.
inline Run refused(const std::string& arguments) {
  Run run = shardproof(arguments + " 2>&1 >/dev/full");
  CHECK(std::count(run.out.begin(), run.out.end(), '\n') == 1);
  return run;
}

// A folder of this test's own, gone at its end.
struct Folder {
  Folder()
      : path(std::filesystem::temp_directory_path() / ("shardproof-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
  std::filesystem::path path;
};

inline std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace shardproof::cli
