#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "reference/slots/ownership.h"

namespace shardproof {
namespace {

using Owners = std::vector<Owner>;

std::string error_of(const std::string& text, std::size_t coordinates, std::size_t owners) {
  const Result<Ownership> read = read_ownership("table", text, coordinates, owners);
  return read ? "" : read.error();
}

}  // namespace

TEST_CASE("mod gives coordinate i to i mod owners, and each its own where owners is 0") {
  CHECK(coordinate_owner(3, 7) == 1);
  CHECK(coordinate_owner(0, 7) == 7);
  CHECK(mod_ownership(5, 2).owner_of == Owners{0, 1, 0, 1, 0});
  CHECK(mod_ownership(5, 2).owners == 2);
  CHECK(mod_ownership(3, 0).owner_of == Owners{0, 1, 2});
  CHECK(mod_ownership(3, 0).owners == 3);
  CHECK(mod_ownership(2, 5).owner_of == Owners{0, 1});
  CHECK(mod_ownership(2, 5).owners == 5);
  CHECK(mod_ownership(0, 0).owners == 1);
}

TEST_CASE("blocks are those of a buffer padded to a multiple of the owners") {
  CHECK(block_ownership(6, 3).owner_of == Owners{0, 0, 1, 1, 2, 2});
  CHECK(block_ownership(5, 3).owner_of == Owners{0, 0, 1, 1, 2});
  CHECK(block_ownership(4, 3).owner_of == Owners{0, 0, 1, 1});
  CHECK(block_ownership(2, 4).owner_of == Owners{0, 1});
  CHECK(block_ownership(0, 3).owner_of.empty());
  CHECK(block_ownership(3, 1).owner_of == Owners{0, 0, 0});
}

TEST_CASE("greedy gives whole parameters, largest first, to the owner with the least") {
  const std::vector<std::size_t> sizes{1, 4, 0, 3, 1};
  // 4 to owner 0, 3 to owner 1, the first 1 to owner 1 (4 : 4 then), the last to owner 0.
  CHECK(greedy_ownership(sizes, 2).owner_of == Owners{1, 0, 0, 0, 0, 1, 1, 1, 0});
  const std::vector<std::size_t> equal{2, 2, 2};
  CHECK(greedy_ownership(equal, 2).owner_of == Owners{0, 0, 1, 1, 0, 0});
  CHECK(greedy_ownership(equal, 5).owner_of == Owners{0, 0, 1, 1, 2, 2});
  CHECK(greedy_ownership({}, 2).owner_of.empty());
  // Equals in their order, however many: each goes where mod would have it.
  const std::vector<std::size_t> ones(100, 1);
  CHECK(greedy_ownership(ones, 7).owner_of == mod_ownership(100, 7).owner_of);
}

TEST_CASE("a table is read from text") {
  const Result<Ownership> read =
      read_ownership("table", "# whose\n0 2\t1 # three\r\n\n 2#four\n", 4, 3);
  REQUIRE(read);
  CHECK(read->owner_of == Owners{0, 2, 1, 2});
  CHECK(read->owners == 3);
  CHECK(read_ownership("table", "", 0, 1));
  CHECK(read_ownership("table", "#", 0, 1));
}

TEST_CASE("a wrong table is one error with line and column") {
  CHECK(error_of("0 1\n  5", 3, 2) ==
        "table:2:3: there is no owner 5; 2 owners are numbered from 0");
  CHECK(error_of("0 99999999999999999999", 2, 2) ==
        "table:1:3: there is no owner 99999999999999999999; 2 owners are numbered from 0");
  for (const std::string word : {"x", "1x", "-1", "+1", "0.5", "0x1", ","}) {
    CHECK(error_of("0\n" + word + " 1", 3, 2) ==
          "table:2:1: '" + word + "' is no whole number; give the owner of each coordinate");
  }
  CHECK(error_of("0 1 # \n1", 2, 2) ==
        "table:2:1: more numbers than the 2 coordinates; give one for each");
  CHECK(error_of("0\n1\n", 3, 2) == "table:3:1: 2 numbers for 3 coordinates; give one for each");
  CHECK(error_of("", 1, 2) == "table:1:1: 0 numbers for 1 coordinates; give one for each");
  CHECK(error_of(std::string(1000, 'z'), 1, 1).size() < 120);
}

}  // namespace shardproof
