// Photographs as the network's input: decoded, resized, cropped and normalised as timm does for
// mobilenetv4_conv_medium (timm/data/transforms_factory.py, `transforms_imagenet_eval`, crop_pct
// 0.95, bicubic), which means as Pillow resizes: with antialiasing, and each of the two passes
// rounded to 8 bits. A PNG gives the bits that timm's pipeline gives; a JPEG differs where
// stb_image's decoder differs from libjpeg's by a step of 8 bits. Orientation tags are not read, as
// Pillow does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/graph/tensor.h"
#include "reference/result.h"

namespace shardproof {

// Rows from the top, pixels from the left, three bytes each: red, green, blue.
struct Image {
  std::size_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels;
  bool operator==(const Image&) const = default;
};

// A PNG or JPEG in memory; grey is widened to RGB, alpha dropped, 16 bits cut to 8. `file` is the
// name for errors. A file has at most 64 MiB, an image at most 50 million pixels; decoding asks for
// at most 512 MiB at a time.
Result<Image> decode_image(std::span<const std::byte> bytes, const std::string& file);

// The window of `extent`×`extent` pixels at (top, left) of the image resized to height×width by
// Pillow's bicubic: kernel a = −0.5, its support scaled by the ratio when shrinking, horizontal
// pass first, coefficients in 22-bit fixed point.
Image resized_window(const Image& image, std::size_t height, std::size_t width, std::size_t top,
                     std::size_t left, std::size_t extent);

// Shorter side to ⌊size/0.95⌋, then the size×size pixels in the middle.
Image centre_crop(const Image& image, std::size_t size);

// {1, 3, H, W}: (v/255 − mean)/deviation with ImageNet's mean and deviation, in float32.
Tensor<float> normalised(const Image& image);

// `count` inputs of {1, 3, size, size}, no two alike. First the centre crops in the given order;
// place i after them takes image i mod paths.size(), a square drawn from (seed, i) with a side
// between half and the whole of the shorter one, flipped or not. It is an error when there are more
// images than places, when two images give the same crop, or when the images have too few different
// crops.
Result<std::vector<Tensor<float>>> load_batch(std::span<const std::string> paths, std::size_t count,
                                              std::size_t size, std::uint64_t seed);

}  // namespace shardproof
