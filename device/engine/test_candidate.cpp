// Every way in which a candidate can misbehave is reported as what it is, and the next call finds a
// child that works.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "device/engine/candidate_device.h"

using namespace shardproof;

namespace {

std::string library(const std::string& name) { return std::string(CANDIDATES) + name + ".so"; }

std::unique_ptr<Device> load(const std::string& name, int replicas = 1,
                             std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  auto device = make_candidate_device(library(name), replicas, {limit, {}, 1});
  INFO(name);
  if (!device) FAIL(device.error());
  return std::move(*device);
}

std::string load_error(const std::string& path) {
  CandidateOptions options;
  const auto device = make_candidate_device(path, 1, options);
  return device ? "" : device.error();
}

bool holds(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

// y of the device's ReLU of −20, −19, …, 19.
constexpr std::size_t kCount = 40;
std::vector<float> relu(Device& device) {
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i) - 20;
  float* x = device.allocate(0, kCount);
  float* y = device.allocate(0, kCount);
  device.upload(0, x, values.data(), kCount);
  device.relu({0, x, y, kCount});
  device.download(0, y, values.data(), kCount);
  device.release(0, x);
  device.release(0, y);
  return values;
}

std::string relu_error(Device& device) {
  try {
    relu(device);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

std::vector<float> all_reduce(Device& device) {
  AllReduceMeanCall call{{}, {}, 3};
  const std::size_t replicas = static_cast<std::size_t>(device.replicas());
  for (std::size_t r = 0; r < replicas; ++r) {
    float* values = device.allocate(static_cast<int>(r), 3);
    const float mine[] = {static_cast<float>(r), 1, -static_cast<float>(r)};
    device.upload(static_cast<int>(r), values, mine, 3);
    call.send.push_back(values);
    call.receive.push_back(values);
  }
  device.all_reduce_mean(call);
  std::vector<float> all(3 * replicas);
  for (std::size_t r = 0; r < replicas; ++r)
    device.download(static_cast<int>(r), call.receive[r], &all[3 * r], 3);
  return all;
}

}  // namespace

TEST_CASE("a correct candidate's operations run, in place on all replicas at once too") {
  const auto device = load("correct", 4);
  const std::vector<float> y = relu(*device);
  for (std::size_t i = 0; i < kCount; ++i)
    REQUIRE(y[i] == (i < 20 ? 0 : static_cast<float>(i) - 20));
  const std::vector<float> mean = all_reduce(*device);
  for (std::size_t r = 0; r < 4; ++r) {
    CHECK(mean[3 * r] == 1.5F);
    CHECK(mean[3 * r + 1] == 1);
    CHECK(mean[3 * r + 2] == -1.5F);
  }
}

TEST_CASE("a contract is the entry's own; an empty entry has the built-in device's") {
  const auto device = load("correct");
  const Contract own = device->contract(Operation::all_reduce_mean, 1, 1);
  CHECK(own.accumulate == Accumulate::bfloat16);
  CHECK(own.lanes == 8);
  CHECK(!own.contraction);
  CHECK(own.subnormals_kept);
  CHECK(own.mean == MeanDivision::divide);
  CHECK(device->contract(Operation::dense, 1, 1).accumulate != Accumulate::bfloat16);
}

TEST_CASE("every misbehaviour in a call is told, and the next call finds a child that works") {
  const std::vector<std::pair<std::string, std::string>> told = {
      {"crash", "relu on replica 0 crashed (SIGABRT)"},
      {"divides", "relu on replica 0 crashed (SIGFPE)"},
      {"null_pointer", "relu on replica 0 crashed (SIGSEGV): it touched a null pointer"},
      {"past_end", "relu on replica 0 wrote 0 bytes past the end of its output y"},
      {"past_slack", "past the end of its output y"},
      {"before_start", "relu on replica 0 wrote 8 bytes before the start of its output y"},
      {"changes_input", "relu on replica 0 changed its input x at index 17"},
      {"status", "relu on replica 0 returned status 7: no kernel for 40 numbers"},
      {"threads", "relu on replica 0 left 1 thread behind"},
      {"calls_exit", "relu on replica 0 ended its process"},
      {"scratch_overrun", "it wrote outside its scratch"}};
  for (const auto& [name, sentence] : told) {
    const auto device = load(name);
    for (int run = 0; run < 2; ++run) {
      CAPTURE(name, run);
      CHECK(holds(relu_error(*device), sentence));
    }
    CHECK(all_reduce(*device).size() == 3);
  }
}

TEST_CASE("a candidate that hangs is ended at the time limit") {
  const auto device = load("hang", 2, std::chrono::milliseconds(300));
  CHECK(holds(relu_error(*device), "relu on replica 0 did not return within 300 ms"));
  CHECK_THROWS_WITH(all_reduce(*device), Catch::Contains("all_reduce_mean did not return within"));
}

TEST_CASE("a replica that gives up frees the others, and is the one that is named") {
  const auto device = load("status", 4);
  CHECK_THROWS_WITH(all_reduce(*device),
                    Catch::Contains("all_reduce_mean on replica 1 returned status 3"));
}

TEST_CASE("threads that a candidate says it keeps are no fault") {
  const auto device = load("kept_thread");
  CHECK(relu_error(*device).empty());
  CHECK(relu_error(*device).empty());
}

TEST_CASE("what a candidate prints does not reach this program's output") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::cout.flush();
  const int kept = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  {
    const auto device = load("prints");
    relu(*device);
  }
  dup2(kept, STDOUT_FILENO);
  close(kept);
  close(ends[1]);
  char byte;
  CHECK(read(ends[0], &byte, 1) == 0);
  close(ends[0]);
}

TEST_CASE("a library that cannot be used is bad input with a sentence that says why") {
  CHECK(holds(load_error("/nowhere/at/all.so"), "cannot be read"));
  CHECK(holds(load_error(library("no_symbol_here")), "exports no shardproof_candidate"));
  CHECK(holds(load_error(library("other_version")),
              "was built for version 7 of candidate.h, but this program has version 1"));
  CHECK(holds(load_error(library("refuses")), "refused version 1 of candidate.h with status 5"));
  CHECK(holds(load_error(library("empty")), "fills no operation"));
  CHECK(holds(load_error(library("crash_at_load")), "crashed while it was loaded (SIGABRT)"));
  CHECK(holds(load_error(library("winograd")), "declares a Winograd convolution"));

  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "candidate_files";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "text.so") << "no library\n";
  CHECK(holds(load_error(folder / "text.so"), "cannot be loaded"));
  // A library of another machine: the same file with e_machine overwritten.
  std::filesystem::copy_file(library("correct"), folder / "other.so",
                             std::filesystem::copy_options::overwrite_existing);
  std::fstream file(folder / "other.so", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(18);
  file.write("\xb7\x00", 2);
  file.close();
  CHECK(holds(load_error(folder / "other.so"), "cannot be loaded"));
  std::filesystem::remove_all(folder);
}

TEST_CASE(
    "an entry that nothing would call is refused, and a function fills a table as a library") {
  const auto device = make_candidate_device(
      [](shardproof_candidate_table& table) {
        table.relu = [](const shardproof_unary*) { return 0; };
        table.unshard = [](const shardproof_collective_call*) { return 0; };
      },
      1);
  REQUIRE(!device);
  CHECK_THAT(device.error(), Catch::Contains("fills `unshard`, which nothing calls yet"));
  const auto named = make_candidate_device(
      [](shardproof_candidate_table& table) {
        table.name = "a function";
        table.relu = [](const shardproof_unary* call) {
          static_cast<float*>(call->y.data)[0] = 3;
          return 0;
        };
      },
      1);
  REQUIRE(named);
  CHECK((*named)->name() == "candidate a function");
  float* x = (*named)->allocate(0, 1);
  float* y = (*named)->allocate(0, 1);
  (*named)->relu({0, x, y, 1});
  float got = 0;
  (*named)->download(0, y, &got, 1);
  CHECK(got == 3);
}

TEST_CASE("a candidate that takes channels last gets some shapes so, and gives the same numbers") {
  const auto make = [](std::uint64_t layouts) {
    return *make_candidate_device(
        [layouts](shardproof_candidate_table& table) {
          table.layouts = layouts;
          table.normalise = [](const shardproof_normalise* call) {
            const auto *x = static_cast<const float*>(call->x.data),
                       *mean = static_cast<const float*>(call->mean.data);
            auto* y = static_cast<float*>(call->y.data);
            const auto *s = call->x.strides, *t = call->y.strides;
            for (std::int64_t n = 0; n < call->x.shape[0]; ++n) {
              for (std::int64_t c = 0; c < call->x.shape[1]; ++c) {
                for (std::int64_t i = 0; i < call->x.shape[2]; ++i) {
                  // Tells the layouts apart by its sign.
                  const float sign = s[1] == 1 && t[1] == 1 ? -1.0F : 1.0F;
                  y[n * t[0] + c * t[1] + i * t[2]] =
                      sign * (x[n * s[0] + c * s[1] + i * s[2]] + mean[c]);
                }
              }
            }
            return 0;
          };
        },
        1);
  };
  for (const std::uint64_t layouts : {0U, 1U}) {
    const auto device = make(layouts);
    int last = 0;
    for (std::size_t plane = 2; plane < 30; ++plane) {
      constexpr std::size_t batch = 2, channels = 3;
      const std::size_t count = batch * channels * plane;
      std::vector<float> x(count), y(count), mean{100, 200, 300};
      for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(i);
      float *on_x = device->allocate(0, count), *on_y = device->allocate(0, count),
            *on_mean = device->allocate(0, channels);
      device->upload(0, on_x, x.data(), count);
      device->upload(0, on_mean, mean.data(), channels);
      device->normalise(
          {0, on_x, on_mean, on_mean, on_mean, on_mean, 0, false, on_y, batch, channels, plane});
      device->download(0, on_y, y.data(), count);
      if (y[1] < 0) ++last;
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (std::abs(y[i]) != x[i] + mean[i / plane % channels]) ++wrong;
      }
      CHECK(wrong == 0);
      for (float* array : {on_x, on_y, on_mean}) device->release(0, array);
    }
    CHECK((layouts == 0 ? last == 0 : last > 5 && last < 23));
  }
}

TEST_CASE(
    "a maker hands a child process on from one device to the next, and makes another after a "
    "crash") {
  const auto make = candidate_maker([](shardproof_candidate_table& table) {
    table.relu = [](const shardproof_unary* call) {
      static int calls = 0;
      if (call->x.shape[0] > 1) std::abort();
      static_cast<float*>(call->y.data)[0] = static_cast<float>(++calls);
      return 0;
    };
  });
  const auto calls = [&](std::size_t count) {
    const auto device = make(1, {});
    float* x = device->allocate(0, count);
    float* y = device->allocate(0, count);
    device->relu({0, x, y, count});
    float got = 0;
    device->download(0, y, &got, 1);
    device->release(0, x);
    device->release(0, y);
    return got;
  };
  CHECK(calls(1) == 1);
  CHECK(calls(1) == 2);
  CHECK_THROWS_AS(calls(2), DeviceError);
  CHECK(calls(1) == 1);
}

TEST_CASE("time of a call", "[.][speed]") {
  const auto device = load("correct");
  float* x = device->allocate(0, kCount);
  float* y = device->allocate(0, kCount);
  const std::vector<float> values(kCount, 1);
  device->upload(0, x, values.data(), kCount);
  constexpr int calls = 20000;
  const auto start = std::chrono::steady_clock::now();
  for (int call = 0; call < calls; ++call) device->relu({0, x, y, kCount});
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
  std::printf("%.2f microseconds a call\n", spent.count() / calls);
}
