// libFuzzer entry: no bytes may crash the decoder, and what it accepts has all its pixels.
#include <cstdint>
#include <cstdlib>

#include "reference/nets/photographs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto image = shardproof::decode_image(std::as_bytes(std::span(data, size)), "input");
  if (!image) {
    if (image.error().empty()) std::abort();
    return 0;
  }
  if (image->height == 0 || image->width == 0) std::abort();
  if (image->pixels.size() != image->height * image->width * 3) std::abort();
  if (image->pixels.size() < 1'000'000) {
    if (shardproof::centre_crop(*image, 32).pixels.size() != 3 * 32 * 32) std::abort();
  }
  return 0;
}
