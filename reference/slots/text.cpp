#include "reference/slots/text.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace shardproof {
namespace {

using Kind = ExpressionNode::Kind;
using Declaration = ProgramText::Declaration;
using Assigned = ProgramText::Assigned;

constexpr int deepest_nesting = 200;
constexpr std::size_t longest_name = 100;
constexpr std::size_t longest_number = 1000;
constexpr long largest_exponent = 2000;

struct Word {
  std::string_view spelling;
  Kind kind;
};
constexpr std::array<Word, 7> functions{{{"sqrt", Kind::square_root},
                                         {"abs", Kind::absolute},
                                         {"sign", Kind::sign},
                                         {"min", Kind::minimum},
                                         {"max", Kind::maximum},
                                         {"select", Kind::select},
                                         {"fma", Kind::fused_multiply_add}}};

struct Operator {
  std::string_view spelling, printed;
  Kind kind;
  int precedence;
};
constexpr int comparison = 1, sum = 2, product = 3, unary = 4, power = 5, atom = 6;
constexpr std::array<Operator, 10> operators{{{"<", " < ", Kind::less, comparison},
                                              {"<=", " <= ", Kind::less_equal, comparison},
                                              {">", " > ", Kind::greater, comparison},
                                              {">=", " >= ", Kind::greater_equal, comparison},
                                              {"==", " == ", Kind::equal, comparison},
                                              {"!=", " != ", Kind::not_equal, comparison},
                                              {"+", " + ", Kind::add, sum},
                                              {"-", " - ", Kind::subtract, sum},
                                              {"*", "*", Kind::multiply, product},
                                              {"/", "/", Kind::divide, product}}};

struct Declarer {
  std::string_view spelling;
  Declaration::Kind kind;
};
constexpr std::array<Declarer, 5> declarers{{{"shared", Declaration::Kind::shared},
                                             {"parameter", Declaration::Kind::parameter},
                                             {"gradient", Declaration::Kind::gradient},
                                             {"state", Declaration::Kind::state},
                                             {"temporary", Declaration::Kind::temporary}}};
constexpr std::array<Declarer, 3> per_declarers{{{"parameter", Declaration::Kind::per_parameter},
                                                 {"row", Declaration::Kind::per_row},
                                                 {"column", Declaration::Kind::per_column}}};
constexpr std::array<std::string_view, 8> other_words{"program",    "per", "row",  "column",
                                                      "coordinate", "sum", "mean", "all_reduce"};

// The entry whose field equals a value, or nullptr.
template <class Table, class Field, class Value>
constexpr auto find_in(const Table& table, Field field, const Value& value) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const auto& entry) { return entry.*field == value; });
  return found == table.end() ? nullptr : &*found;
}

bool is_reserved(std::string_view word) {
  return find_in(functions, &Word::spelling, word) ||
         find_in(declarers, &Declarer::spelling, word) ||
         std::find(other_words.begin(), other_words.end(), word) != other_words.end();
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return begins_name(c) || is_digit(c); }

// A number's parts: whole.fraction times 10 or 2 to the exponent.
struct NumberParts {
  bool hexadecimal = false;
  std::string_view whole, fraction;
  bool exponent_given = false, negative_exponent = false;
  std::string_view exponent;
  std::size_t length = 0;  // of the spelling
};

// The number that the text begins with; of length 0 where there is none.
NumberParts split_number(std::string_view text) {
  NumberParts parts;
  std::size_t at = 0;
  const auto look = [&] { return at < text.size() ? text[at] : '\0'; };
  const auto digits = [&](bool (*accepts)(char)) {
    const std::size_t start = at;
    while (accepts(look())) ++at;
    return text.substr(start, at - start);
  };
  parts.hexadecimal = text.size() > 1 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
  if (parts.hexadecimal) at = 2;
  const auto accepts = parts.hexadecimal ? is_hex_digit : is_digit;
  parts.whole = digits(accepts);
  if (look() == '.') {
    ++at;
    parts.fraction = digits(accepts);
  }
  if (parts.whole.empty() && parts.fraction.empty()) return {};
  const char lower = static_cast<char>(look() | 0x20);
  if (lower == (parts.hexadecimal ? 'p' : 'e')) {
    ++at;
    parts.exponent_given = true;
    parts.negative_exponent = look() == '-';
    if (look() == '-' || look() == '+') ++at;
    parts.exponent = digits(is_digit);
  }
  parts.length = at;
  return parts;
}

// The exponent, or one past the largest allowed when it is beyond it.
long small_exponent(const NumberParts& parts) {
  long value = 0;
  for (const char c : parts.exponent) {
    value = std::min(value * 10 + (c - '0'), largest_exponent + 1);
  }
  return parts.negative_exponent ? -value : value;
}

struct Token {
  enum class Kind : std::uint8_t { name, number, symbol, line_end, end };
  Kind kind = Kind::end;
  std::string_view spelling;
  Position position;
};

std::string described(const Token& token) {
  switch (token.kind) {
    case Token::Kind::line_end:
      return "the end of the line";
    case Token::Kind::end:
      return "the end of the file";
    default:
      return "'" + std::string(token.spelling.substr(0, longest_name)) + "'";
  }
}

// Recursive descent, at most deepest_nesting deep. The first error wins: after it every token is
// the end of the file, so all loops stop.
class Parser {
 public:
  Parser(const std::string& file, std::string_view text) : file_(file), text_(text) { advance(); }

  Result<ProgramText> parse() {
    skip_empty_lines();
    if (accept("program")) {
      program_.name = slot_name("a program's name");
      end_line();
      skip_empty_lines();
    }
    while (token_.kind != Token::Kind::end) {
      line();
      skip_empty_lines();
    }
    if (error_) return *error_;
    return std::move(program_);
  }

 private:
  void fail(Position position, const std::string& what_and_mend) {
    if (!error_) error_ = error_at(file_, position, what_and_mend);
    token_ = {Token::Kind::end, {}, position};
  }
  void expected(const std::string& what, const std::string& mend) {
    fail(token_.position, "expected " + what + ", found " + described(token_) + "; " + mend);
  }

  // Tokens.

  Position here() const { return {line_, at_ - line_start_ + 1}; }

  void advance() {
    if (error_) return;
    for (;; ++at_) {
      if (at_ == text_.size()) {
        token_ = {Token::Kind::end, {}, here()};
        return;
      }
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
      } else if (c == '\n') {
        token_ = {Token::Kind::line_end, {}, here()};
        ++line_;
        line_start_ = at_ + 1;
        if (!open_.empty()) continue;
        ++at_;
        return;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        break;
      }
    }
    const std::string_view rest = text_.substr(at_);
    const char c = rest[0];
    if (begins_name(c)) {
      std::size_t length = 1;
      while (length < rest.size() && continues_name(rest[length])) ++length;
      take(Token::Kind::name, length);
      if (length > longest_name) {
        fail(token_.position,
             "a name of " + std::to_string(length) + " characters; give it 100 at most");
      }
    } else if (is_digit(c) || c == '.') {
      number(rest);
    } else {
      symbol(rest);
    }
  }

  void take(Token::Kind kind, std::size_t length) {
    token_ = {kind, text_.substr(at_, length), here()};
    at_ += length;
  }

  void number(std::string_view rest) {
    const NumberParts parts = split_number(rest);
    const auto after = parts.length < rest.size() ? rest[parts.length] : ' ';
    if (parts.length == 0 || (parts.exponent_given && parts.exponent.empty()) ||
        continues_name(after) || after == '.') {
      return fail(here(), "no number; write it like 0.001, 1e-8 or 0x1.8p-3");
    }
    if (parts.length > longest_number) {
      return fail(here(), "a number of " + std::to_string(parts.length) +
                              " characters; write 1000 at most");
    }
    if (std::abs(small_exponent(parts)) > largest_exponent) {
      return fail(here(), "an exponent beyond 2000; use a smaller one");
    }
    take(Token::Kind::number, parts.length);
  }

  void symbol(std::string_view rest) {
    for (const std::string_view pair : {"<=", ">=", "==", "!="}) {
      if (rest.substr(0, 2) == pair) return take(Token::Kind::symbol, 2);
    }
    const char c = rest[0];
    if (std::string_view("+-*/^()<>=,:").find(c) == std::string_view::npos) {
      const bool printable = c > ' ' && c < '\x7f';
      return fail(here(), printable ? "'" + std::string(1, c) +
                                          "' means nothing here; remove it, or begin a comment "
                                          "with '#'"
                                    : "a byte that is not plain ASCII; only comments may have "
                                      "others");
    }
    if (c == ')' && open_.empty()) {
      return fail(here(), "')' closes no parenthesis; remove it");
    }
    take(Token::Kind::symbol, 1);
    if (c == '(') open_.push_back(token_.position);
    if (c == ')') open_.pop_back();
  }

  bool at(std::string_view spelling) const { return token_.spelling == spelling; }
  bool accept(std::string_view spelling) {
    if (!at(spelling)) return false;
    advance();
    return true;
  }

  void skip_empty_lines() {
    while (token_.kind == Token::Kind::line_end) advance();
  }
  void end_line() {
    if (token_.kind == Token::Kind::end) return;
    if (token_.kind != Token::Kind::line_end) {
      return expected("the end of the line", "write one declaration or assignment a line");
    }
    advance();
  }

  // A name of the user's own.
  std::string slot_name(const std::string& what) {
    if (token_.kind != Token::Kind::name) {
      expected(what, "names are letters, digits and underscores, no digit first");
      return {};
    }
    if (is_reserved(token_.spelling)) {
      expected(what, "this word is reserved: choose another name");
      return {};
    }
    std::string name(token_.spelling);
    advance();
    return name;
  }

  // Lines.

  void line() {
    if (const Declarer* declarer = find_in(declarers, &Declarer::spelling, token_.spelling)) {
      return declaration(declarer->kind);
    }
    if (at("per") || at("coordinate")) return declaration(Declaration::Kind::coordinate);
    if (at("program")) {
      return fail(token_.position,
                  "the program's name stands after other lines, or twice; put one such line first");
    }
    assignment();
  }

  void declaration(Declaration::Kind kind) {
    Declaration declaration{kind, 0, {}, token_.position};
    if (!program_.assignments.empty()) {
      return fail(token_.position,
                  "a declaration after an assignment; move it above the first assignment");
    }
    if (accept("per")) {
      const Declarer* per = find_in(per_declarers, &Declarer::spelling, token_.spelling);
      if (per == nullptr)
        return expected("what it has one value per", "write parameter, row or column");
      declaration.kind = per->kind;
      advance();
    } else if (accept("coordinate")) {
      declaration.coordinate = coordinate_number();
      if (!error_ && !accept(":")) {
        return expected("':'", "write the slots after it, as in coordinate 0: p0, m0 = 0");
      }
    } else {
      advance();
    }
    do {
      Declaration::Named named{{}, {}, token_.position};
      named.name = slot_name("a slot's name");
      if (accept("=")) {
        if (accept("-")) named.initial = "-";
        if (token_.kind != Token::Kind::number) {
          return expected("a number", "initial values are constants like -0.5, 1e-8 or 0x1.8p-3");
        }
        named.initial += token_.spelling;
        advance();
      }
      declaration.slots.push_back(std::move(named));
    } while (accept(","));
    end_line();
    program_.declarations.push_back(std::move(declaration));
  }

  Coordinate coordinate_number() {
    std::uint64_t value = 0;
    for (const char c : token_.spelling) {
      if (token_.kind != Token::Kind::number || !is_digit(c)) {
        value = ~std::uint64_t{0};
        break;
      }
      value = std::min<std::uint64_t>(value * 10 + static_cast<unsigned>(c - '0'), 1ULL << 40U);
    }
    if (token_.spelling.empty() || value > kHighestCoordinate) {
      expected("a coordinate's number",
               "write a whole number from 0 to " + std::to_string(kHighestCoordinate));
      return 0;
    }
    advance();
    return static_cast<Coordinate>(value);
  }

  void assignment() {
    Assigned assigned;
    assigned.position = token_.position;
    assigned.target = slot_name("a declaration or the slot that is assigned");
    if (error_) return;
    if (!accept("=")) return expected("'='", "an assignment is written slot = expression");
    assigned.all_reduce = accept("all_reduce");
    if (at("sum") || at("mean")) {
      assigned.reduction = at("sum") ? Assigned::Reduction::sum : Assigned::Reduction::mean;
      advance();
      if (!open()) return;
      expression(comparison, assigned.expression);
      close();
    } else if (assigned.all_reduce) {
      return expected("sum or mean", "all_reduce stands before sum(...) or mean(...)");
    } else {
      expression(comparison, assigned.expression);
    }
    if (assigned.reduction != Assigned::Reduction::none && !error_ &&
        token_.kind != Token::Kind::line_end && token_.kind != Token::Kind::end) {
      return expected("the end of the line",
                      "sum and mean stand alone: assign them to a slot and use that");
    }
    end_line();
    program_.assignments.push_back(std::move(assigned));
  }

  // Expressions.

  bool open() {
    if (!accept("(")) {
      expected("'('", "operands stand in parentheses");
      return false;
    }
    return !error_;
  }
  void close() {
    if (error_ || accept(")")) return;
    const Position opened = open_.empty() ? Position{} : open_.back();
    expected("')'", "close the parenthesis opened at " + std::to_string(opened.line) + ":" +
                        std::to_string(opened.column));
  }

  // Appends the nodes of the longest expression whose operators bind at least as tight as
  // `loosest`.
  void expression(int loosest, Expression& nodes) {
    if (++depth_ > deepest_nesting) {
      return fail(token_.position, "nested more than " + std::to_string(deepest_nesting) +
                                       " deep; assign a part to a slot of its own");
    }
    const Position start = token_.position;
    if (accept("-")) {
      expression(unary, nodes);
      nodes.push_back({Kind::negate, {}, 0, start});
    } else {
      operand(nodes);
      if (accept("^")) {
        nodes.push_back({Kind::power, {}, exponent(), start});
        if (at("^")) expected("no second '^'", "use parentheses to say which power comes first");
      }
    }
    while (token_.kind == Token::Kind::symbol) {
      const Operator* binary = find_in(operators, &Operator::spelling, token_.spelling);
      if (binary == nullptr || binary->precedence < loosest) break;
      const Position position = token_.position;
      advance();
      expression(binary->precedence + 1, nodes);
      nodes.push_back({binary->kind, {}, 0, position});
      if (binary->precedence == comparison) {
        binary = find_in(operators, &Operator::spelling, token_.spelling);
        if (binary != nullptr)
          expected("no second comparison", "use parentheses to say which comes first");
        break;
      }
    }
    --depth_;
  }

  int exponent() {
    const bool negative = accept("-");
    int value = 0;
    const bool whole = token_.kind == Token::Kind::number &&
                       std::all_of(token_.spelling.begin(), token_.spelling.end(), is_digit);
    for (const char c : whole ? token_.spelling : std::string_view()) {
      value = std::min(value * 10 + (c - '0'), kHighestPower + 1);
    }
    if (!whole || value > kHighestPower) {
      expected("a whole number from -64 to 64 as power", "other powers are not in the language");
      return 0;
    }
    advance();
    return negative ? -value : value;
  }

  void operand(Expression& nodes) {
    const Position position = token_.position;
    if (token_.kind == Token::Kind::number) {
      nodes.push_back({Kind::number, std::string(token_.spelling), 0, position});
      return advance();
    }
    if (accept("(")) {
      expression(comparison, nodes);
      return close();
    }
    if (const Word* function = find_in(functions, &Word::spelling, token_.spelling)) {
      advance();
      if (!open()) return;
      const std::size_t count = operands(function->kind);
      const std::string mend = std::string(function->spelling) + " takes " +
                               (count == 1 ? "one operand" : std::to_string(count) + " operands");
      for (std::size_t i = 0; i < count; ++i) {
        if (i > 0 && !accept(",")) return expected("','", mend);
        expression(comparison, nodes);
      }
      if (at(",")) return expected("')'", mend);
      close();
      nodes.push_back({function->kind, {}, 0, position});
      return;
    }
    if (at("sum") || at("mean") || at("all_reduce")) {
      return expected("an operand", "sum and mean stand alone: assign them to a slot and use that");
    }
    nodes.push_back({Kind::slot, slot_name("an operand"), 0, position});
    if (at("(")) {
      fail(position, "no function is called " + nodes.back().spelling +
                         "; there are sqrt, abs, sign, min, max, select and fma");
    }
  }

  const std::string& file_;
  std::string_view text_;
  std::size_t at_ = 0, line_ = 1, line_start_ = 0;
  std::vector<Position> open_;  // the parentheses
  int depth_ = 0;
  Token token_;
  ProgramText program_;
  std::optional<Error> error_;
};

std::string printed(const Expression& expression) {
  struct Part {
    std::string text;
    int precedence;
  };
  std::vector<Part> parts;
  // Takes the last part, in parentheses unless it binds at least as tight as asked.
  const auto pop = [&](int tightest) {
    Part part = std::move(parts.back());
    parts.pop_back();
    return part.precedence >= tightest ? std::move(part.text) : "(" + part.text + ")";
  };
  for (const ExpressionNode& node : expression) {
    if (parts.size() < operands(node.kind)) throw std::logic_error("print: an operand is missing");
    if (const Operator* binary = find_in(operators, &Operator::kind, node.kind)) {
      const std::string right = pop(binary->precedence + 1);
      std::string left = pop(binary->precedence + (binary->precedence == comparison));
      left.append(binary->printed).append(right);
      parts.push_back({std::move(left), binary->precedence});
    } else if (const Word* function = find_in(functions, &Word::kind, node.kind)) {
      std::string list = ")";
      for (std::size_t i = operands(node.kind); i-- > 0;) {
        list.insert(0, pop(comparison)).insert(0, i > 0 ? ", " : "(");
      }
      parts.push_back({std::string(function->spelling) + list, atom});
    } else if (node.kind == Kind::negate) {
      parts.push_back({"-" + pop(unary), unary});
    } else if (node.kind == Kind::power) {
      parts.push_back({pop(atom) + "^" + std::to_string(node.exponent), power});
    } else {
      parts.push_back({node.spelling, atom});
    }
  }
  if (parts.size() != 1) throw std::logic_error("print: no single expression");
  return parts.back().text;
}

}  // namespace

std::size_t operands(Kind kind) {
  if (kind <= Kind::slot) return 0;
  if (kind <= Kind::power) return 1;
  if (kind <= Kind::not_equal) return 2;
  if (kind <= Kind::sign) return 1;
  return kind <= Kind::maximum ? 2 : 3;
}

bool ProgramText::whole() const {
  return std::any_of(declarations.begin(), declarations.end(), [](const Declaration& declaration) {
    return declaration.kind == Declaration::Kind::coordinate;
  });
}

Result<ProgramText> parse_program(const std::string& file, std::string_view text) {
  return Parser(file, text).parse();
}

std::string print(const ProgramText& program) {
  std::string text;
  if (!program.name.empty()) text += "program " + program.name + "\n";
  for (const Declaration& declaration : program.declarations) {
    if (declaration.kind == Declaration::Kind::coordinate) {
      text += "coordinate " + std::to_string(declaration.coordinate) + ":";
    } else if (const Declarer* per = find_in(per_declarers, &Declarer::kind, declaration.kind)) {
      text.append("per ").append(per->spelling);
    } else {
      text += find_in(declarers, &Declarer::kind, declaration.kind)->spelling;
    }
    const char* before = " ";
    for (const Declaration::Named& slot : declaration.slots) {
      text.append(before).append(slot.name);
      if (!slot.initial.empty()) text.append(" = ").append(slot.initial);
      before = ", ";
    }
    text += "\n";
  }
  for (const Assigned& assigned : program.assignments) {
    text += assigned.target + " = ";
    if (assigned.all_reduce) text += "all_reduce ";
    const std::string expression = printed(assigned.expression);
    switch (assigned.reduction) {
      case Assigned::Reduction::none:
        text += expression;
        break;
      case Assigned::Reduction::sum:
        text += "sum(" + expression + ")";
        break;
      case Assigned::Reduction::mean:
        text += "mean(" + expression + ")";
        break;
    }
    text += "\n";
  }
  return text;
}

Rational number_value(std::string_view spelling) {
  const bool negative = !spelling.empty() && spelling[0] == '-';
  if (negative) spelling.remove_prefix(1);
  const NumberParts parts = split_number(spelling);
  if (parts.length == 0 || parts.length != spelling.size()) {
    throw std::logic_error("number_value: no number");
  }
  const std::string digits = std::string(parts.whole).append(parts.fraction);
  using Integer =
      boost::multiprecision::number<boost::multiprecision::gmp_int, boost::multiprecision::et_off>;
  Integer value, scale;
  mpz_set_str(value.backend().data(), digits.c_str(), parts.hexadecimal ? 16 : 10);
  const long places = static_cast<long>(parts.fraction.size()) * (parts.hexadecimal ? 4 : 1);
  const long exponent = small_exponent(parts) - places;
  mpz_ui_pow_ui(scale.backend().data(), parts.hexadecimal ? 2 : 10,
                static_cast<unsigned long>(std::abs(exponent)));
  if (negative) value = -value;
  return exponent < 0 ? Rational(value, scale) : Rational(Integer(value * scale));
}

Error error_at(const std::string& file, Position position, const std::string& what_and_mend) {
  return {file + ":" + std::to_string(position.line) + ":" + std::to_string(position.column) +
          ": " + what_and_mend};
}

}  // namespace shardproof
