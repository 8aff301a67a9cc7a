// Runs something in a child process and reports how it ended: a fault in a kernel ends the process.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

namespace shardproof::host {

struct Fault {
  int exit_code;  // -1 when a signal ended it
  std::string message;
};

template <class Body>
Fault fault_of(Body body) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return {-1, "no pipe"};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(ends[1]);
  Fault fault{-1, ""};
  std::array<char, 256> buffer{};
  for (ssize_t size; (size = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    fault.message.append(buffer.data(), static_cast<std::size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) fault.exit_code = WEXITSTATUS(status);
  return fault;
}

}  // namespace shardproof::host
