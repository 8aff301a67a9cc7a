// stb_image's one implementation, with limits on what a hostile file can make it ask for. Only
// inflated data beyond the image's own size and a PNG's compressed chunks grow by reallocation.
// Without SIMD the same bytes come out on any machine.
#include <cstddef>
#include <cstdlib>

namespace {

constexpr std::size_t allocation_limit = std::size_t{512} << 20U;
constexpr std::size_t growth_limit = std::size_t{128} << 20U;

void* limited_zeroed(std::size_t size) {
  return size > allocation_limit ? nullptr : std::calloc(size, 1);
}
void* limited_realloc(void* block, std::size_t size) {
  return size > growth_limit ? nullptr : std::realloc(block, size);
}

}  // namespace

#define STBI_MALLOC limited_zeroed
#define STBI_REALLOC limited_realloc
#define STBI_FREE std::free
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ASSERT(condition) ((void)0)
#define STBI_NO_STDIO
#define STBI_NO_SIMD
#define STBI_MAX_DIMENSIONS 50000000
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
