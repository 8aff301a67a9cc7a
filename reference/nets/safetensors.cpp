#include "reference/nets/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>

namespace shardproof {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::size_t header_limit = 100'000'000;  // as the format's own reader
constexpr std::size_t tensor_limit = 65'536;
constexpr std::size_t number_limit = std::size_t{1} << 28U;

struct Entry {
  std::string name, dtype;
  std::vector<std::uint64_t> dimensions, offsets;
  bool has_dtype = false, has_dimensions = false, has_offsets = false;
};

// Takes the header's events one by one and stops at the first that the format does not have, so
// neither deep nesting nor a long list costs more than its bytes.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;
  std::string complaint;  // empty while all is well

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is no 64-bit whole number");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::list) return unexpected("a number");
    if (list_->size() == list_limit_) {
      return complain(field_ + " has more than " + std::to_string(list_limit_) + " numbers");
    }
    list_->push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::entry || field_ != "dtype") return unexpected("a string");
    entries.back().dtype = value;
    entries.back().has_dtype = true;
    return true;
  }
  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::outside:
        place_ = Place::header;
        return true;
      case Place::header:
        place_ = in_metadata_ ? Place::metadata : Place::entry;
        keys_.clear();
        return true;
      default:
        return unexpected("an object");
    }
  }
  bool key(string_t& name) override {
    if (place_ == Place::header) {
      if (!names_.insert(name).second) return complain("stands twice in the header", name);
      in_metadata_ = name == "__metadata__";
      if (in_metadata_) return true;
      if (entries.size() == tensor_limit) {
        return complain("more than " + std::to_string(tensor_limit) + " tensors");
      }
      entries.emplace_back().name = name;
      return true;
    }
    if (!keys_.insert(name).second) return complain(quoted_name(name) + " stands twice");
    if (place_ == Place::metadata) return true;
    if (name != "dtype" && name != "shape" && name != "data_offsets") {
      return complain("unknown field " + quoted_name(name));
    }
    field_ = name;
    return true;
  }
  bool end_object() override {
    if (place_ == Place::entry) {
      const Entry& entry = entries.back();
      if (!entry.has_dtype) return complain("no dtype");
      if (!entry.has_dimensions) return complain("no shape");
      if (!entry.has_offsets || entry.offsets.size() != 2) {
        return complain("data_offsets must be two numbers");
      }
    }
    place_ = place_ == Place::header ? Place::outside : Place::header;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::entry || field_ == "dtype") return unexpected("a list");
    place_ = Place::list;
    const bool shape = field_ == "shape";
    list_ = shape ? &entries.back().dimensions : &entries.back().offsets;
    list_limit_ = shape ? 4 : 2;
    (shape ? entries.back().has_dimensions : entries.back().has_offsets) = true;
    return true;
  }
  bool end_array() override {
    place_ = Place::entry;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    complaint = "the header is not valid JSON at its byte " + std::to_string(position);
    return false;
  }

 private:
  enum class Place { outside, header, metadata, entry, list };

  bool unexpected(const std::string& what) {
    switch (place_) {
      case Place::outside:
      case Place::header:
        return complain(what + " where a tensor's dtype, shape and data_offsets belong");
      case Place::metadata:
        return complain(what + " where __metadata__ must hold strings");
      default:
        return complain(what + " in its " + field_);
    }
  }
  bool complain(const std::string& what) {
    if (in_metadata_ || entries.empty()) {
      complaint = what;
      return false;
    }
    return complain(what, entries.back().name);
  }
  bool complain(const std::string& what, const std::string& tensor) {
    complaint = "tensor " + quoted_name(tensor) + ": " + what;
    return false;
  }

  Place place_ = Place::outside;
  bool in_metadata_ = false;
  std::string field_;
  std::vector<std::uint64_t>* list_ = nullptr;
  std::size_t list_limit_ = 0;
  std::set<std::string> names_, keys_;
};

Shape shape_of(const std::vector<std::size_t>& d) {
  switch (d.size()) {
    case 0:
      return {};
    case 1:
      return {1, d[0], 1, 1};
    case 2:
      return {1, 1, d[0], d[1]};
    case 3:
      return {1, d[0], d[1], d[2]};
    default:
      return {d[0], d[1], d[2], d[3]};
  }
}

// Bytes of one number; nothing for a dtype that does not widen exactly to float32.
std::optional<std::size_t> bytes_of(const std::string& dtype) {
  if (dtype == "F32") return 4;
  if (dtype == "F16" || dtype == "BF16") return 2;
  return std::nullopt;
}

// The product of the dimensions, or nothing above the limit.
std::optional<std::size_t> count_of(const std::vector<std::size_t>& dimensions) {
  if (std::find(dimensions.begin(), dimensions.end(), 0U) != dimensions.end()) return 0;
  std::size_t count = 1;
  for (const std::size_t d : dimensions) {
    if (d > number_limit / count) return std::nullopt;
    count *= d;
  }
  return count;
}

float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

float from_float16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU, fraction = bits & 0x3FFU;
  if (exponent == 0) {  // zero and subnormals: fraction·2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t widened = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | widened << 23U | fraction << 13U);
}

// Where the bytes come from: a file or memory.
struct Source {
  virtual ~Source() = default;
  virtual std::size_t size() const = 0;
  // False when the bytes cannot be had.
  virtual bool read(std::size_t offset, std::span<std::byte> into) const = 0;
};

struct MemorySource : Source {
  std::span<const std::byte> bytes;
  explicit MemorySource(std::span<const std::byte> b) : bytes(b) {}
  std::size_t size() const override { return bytes.size(); }
  bool read(std::size_t offset, std::span<std::byte> into) const override {
    if (!into.empty()) std::memcpy(into.data(), bytes.data() + offset, into.size());
    return true;
  }
};

struct FileSource : Source {
  int descriptor;
  std::size_t length = 0;
  explicit FileSource(int d) : descriptor(d) {}
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  ~FileSource() override { ::close(descriptor); }
  std::size_t size() const override { return length; }
  bool read(std::size_t offset, std::span<std::byte> into) const override {
    while (!into.empty()) {
      const ::ssize_t got =
          ::pread(descriptor, into.data(), into.size(), static_cast<::off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      into = into.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::size_t>(got);
    }
    return true;
  }
};

// Checks every entry on its own and all of them together: the ranges, in order, must tile the data.
std::optional<std::string> check_entries(std::vector<Entry>& entries, std::size_t data_size) {
  std::size_t total = 0;
  for (const Entry& entry : entries) {
    const std::string tensor = "tensor " + quoted_name(entry.name) + ": ";
    const std::optional<std::size_t> width = bytes_of(entry.dtype);
    if (!width) {
      return tensor + "dtype " + quoted_name(entry.dtype) +
             " does not widen exactly to float32; store it as F32, F16 or BF16";
    }
    const std::optional<std::size_t> count = count_of(entry.dimensions);
    if (!count || *count > number_limit - total) {
      return tensor + "shape " + dimensions_text(entry.dimensions) + " brings the file above " +
             std::to_string(number_limit) + " numbers";
    }
    total += *count;
    const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    if (begin > end) {
      return tensor + "data_offsets end at " + std::to_string(end) + " before they begin at " +
             std::to_string(begin);
    }
    if (end > data_size) {
      return tensor + "data_offsets end at " + std::to_string(end) + ", past the " +
             std::to_string(data_size) + " bytes of data";
    }
    if (end - begin != *count * *width) {
      return tensor + "shape " + dimensions_text(entry.dimensions) + " of " + entry.dtype +
             " needs " + std::to_string(*count * *width) + " bytes, data_offsets give " +
             std::to_string(end - begin);
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  std::uint64_t covered = 0;
  for (const Entry& entry : entries) {
    const std::uint64_t begin = entry.offsets[0];
    if (begin != covered) {
      return "tensor " + quoted_name(entry.name) + ": data_offsets begin at " +
             std::to_string(begin) +
             (begin < covered ? ", inside the tensor before, which ends at "
                              : ", leaving a gap after ") +
             std::to_string(covered);
    }
    covered = entry.offsets[1];
  }
  if (covered != data_size) {
    return "the tensors end at byte " + std::to_string(covered) + " of the data, the file at " +
           std::to_string(data_size);
  }
  return std::nullopt;
}

Result<StoredTensors> read_from(const Source& source, const std::string& file) {
  const auto error = [&](const std::string& what) { return Error{file + ": " + what}; };
  const auto unreadable = [&] { return error("could not be read to its end"); };

  std::uint64_t header_size = 0;
  if (source.size() < sizeof header_size) {
    return error("has " + std::to_string(source.size()) +
                 " bytes; a safetensors file has at least 8");
  }
  if (!source.read(0, std::as_writable_bytes(std::span(&header_size, 1)))) return unreadable();
  const std::size_t rest = source.size() - sizeof header_size;
  if (header_size > header_limit) {
    return error(
        "is not a safetensors file: its first 8 bytes would be the length of a header, "
        "and say more than the 100,000,000 bytes that the format allows");
  }
  if (header_size > rest) {
    return error("states a header of " + std::to_string(header_size) + " bytes, but only " +
                 std::to_string(rest) + " follow; is it truncated?");
  }
  std::vector<Entry> entries;
  {
    std::string header(header_size, '\0');
    if (!source.read(sizeof header_size, std::as_writable_bytes(std::span(header)))) {
      return unreadable();
    }
    if (!header.starts_with('{')) return error("its header does not begin with {");
    // The JSON reader takes a zero byte for the end of its input.
    if (const auto zero = header.find('\0'); zero != std::string::npos) {
      return error("the header is not valid JSON at its byte " + std::to_string(zero + 1));
    }
    HeaderReader reader;
    if (!nlohmann::json::sax_parse(header, &reader)) return error(reader.complaint);
    entries = std::move(reader.entries);
  }
  const std::size_t data = sizeof header_size + header_size;
  if (const auto complaint = check_entries(entries, source.size() - data)) {
    return error(*complaint);
  }

  StoredTensors tensors;
  std::vector<std::uint16_t> halves;
  for (const Entry& entry : entries) {
    StoredTensor& stored = tensors[entry.name];
    stored.dimensions = entry.dimensions;
    stored.tensor = Tensor<float>(shape_of(entry.dimensions));
    std::vector<float>& values = stored.tensor.values;
    const std::size_t begin = data + entry.offsets[0];
    if (entry.dtype == "F32") {
      if (!source.read(begin, std::as_writable_bytes(std::span(values)))) return unreadable();
      continue;
    }
    halves.resize(values.size());
    if (!source.read(begin, std::as_writable_bytes(std::span(halves)))) return unreadable();
    std::transform(halves.begin(), halves.end(), values.begin(),
                   entry.dtype == "F16" ? from_float16 : from_bfloat16);
  }
  return tensors;
}

bool write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ::ssize_t put = ::write(descriptor, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

}  // namespace

std::string quoted_name(std::string_view name) {
  std::size_t shown = std::min<std::size_t>(name.size(), 60);
  const auto continues = [&] { return (static_cast<unsigned char>(name[shown]) & 0xC0U) == 0x80U; };
  while (shown < name.size() && continues()) --shown;  // no half of a UTF-8 sequence
  std::string text = "\"";
  for (const char c : name.substr(0, shown)) {
    const bool printable = static_cast<unsigned char>(c) >= 0x20 && c != 0x7F;
    text += printable ? c : '?';
  }
  return text + (name.size() > shown ? "…\"" : "\"");
}

std::string dimensions_text(const std::vector<std::size_t>& dimensions) {
  std::string text = "[";
  for (const std::size_t d : dimensions) text += (text.size() > 1 ? "," : "") + std::to_string(d);
  return text + "]";
}

Result<StoredTensors> parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  return read_from(MemorySource(bytes), file);
}

Result<StoredTensors> read_safetensors(const std::string& path) {
  // Without O_NONBLOCK a pipe would wait for its writer.
  FileSource source(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (source.descriptor < 0) return Error{path + ": " + std::strerror(errno)};
  struct ::stat status = {};
  if (::fstat(source.descriptor, &status) != 0) return Error{path + ": " + std::strerror(errno)};
  if (!S_ISREG(status.st_mode)) {
    return Error{path + ": is not a regular file; name a safetensors file"};
  }
  source.length = static_cast<std::size_t>(status.st_size);
  return read_from(source, path);
}

Result<std::monostate> write_safetensors(const std::string& path, const StoredTensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::size_t offset = 0;
  for (const auto& [name, stored] : tensors) {
    const auto count = count_of(stored.dimensions);
    if (stored.dimensions.size() > 4 || !count || *count != stored.tensor.values.size()) {
      throw std::invalid_argument("write_safetensors: " + name + " has dimensions " +
                                  dimensions_text(stored.dimensions) + " and " +
                                  std::to_string(stored.tensor.values.size()) + " values");
    }
    const std::size_t end = offset + *count * sizeof(float);
    header[name] = {
        {"dtype", "F32"}, {"shape", stored.dimensions}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the numbers are aligned

  const std::string partial = path + ".partial-" + std::to_string(::getpid());
  const int descriptor = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return Error{path + ": cannot be written: " + std::strerror(errno)};
  const std::uint64_t header_size = text.size();
  bool written = write_all(descriptor, std::as_bytes(std::span(&header_size, 1))) &&
                 write_all(descriptor, std::as_bytes(std::span(text)));
  for (const auto& [name, stored] : tensors) {
    written = written && write_all(descriptor, std::as_bytes(std::span(stored.tensor.values)));
  }
  int reason = written ? 0 : errno;
  if (::close(descriptor) != 0 && reason == 0) reason = errno;
  if (reason == 0 && std::rename(partial.c_str(), path.c_str()) != 0) reason = errno;
  if (reason != 0) {
    ::unlink(partial.c_str());
    return Error{path + ": cannot be written: " + std::strerror(reason)};
  }
  return std::monostate{};
}

}  // namespace shardproof
