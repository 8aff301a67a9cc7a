#include "reference/slots/compile.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

namespace shardproof {
namespace {

using Kind = ExpressionNode::Kind;
using Declaration = ProgramText::Declaration;
using Assigned = ProgramText::Assigned;
using Role = ArrayProgram::Role;

// The first error of a text; compiling goes on after it, in vain.
class Errors {
 public:
  explicit Errors(const std::string& file) : file_(file) {}

  void add(Position position, const std::string& what_and_mend) {
    if (!first_) first_ = error_at(file_, position, what_and_mend);
  }
  const std::optional<Error>& first() const { return first_; }

 private:
  const std::string& file_;
  std::optional<Error> first_;
};

ValueFunction function_of(Kind kind) {
  switch (kind) {
    case Kind::negate:
      return ValueFunction::negate;
    case Kind::add:
      return ValueFunction::add;
    case Kind::subtract:
      return ValueFunction::subtract;
    case Kind::multiply:
      return ValueFunction::multiply;
    case Kind::divide:
      return ValueFunction::divide;
    case Kind::less:
    case Kind::greater:
      return ValueFunction::less;
    case Kind::less_equal:
    case Kind::greater_equal:
      return ValueFunction::less_equal;
    case Kind::equal:
      return ValueFunction::equal;
    case Kind::not_equal:
      return ValueFunction::not_equal;
    case Kind::square_root:
      return ValueFunction::square_root;
    case Kind::absolute:
      return ValueFunction::absolute;
    case Kind::sign:
      return ValueFunction::sign;
    case Kind::minimum:
      return ValueFunction::minimum;
    case Kind::maximum:
      return ValueFunction::maximum;
    case Kind::select:
      return ValueFunction::select;
    case Kind::fused_multiply_add:
      return ValueFunction::fused_multiply_add;
    case Kind::number:
    case Kind::slot:
    case Kind::power:
      break;
  }
  throw std::logic_error("compile: this node is no single operation");
}

// Evaluates an expression with the builder's operations and returns the builder's value of it:
//   Value slot(const ExpressionNode&), Value constant(const Rational&);
//   Value operate(ValueFunction, std::array<Value, 3> reads, bool last);
//   void release(const Value&), of an operand before the operation that reads it last is built, so
//   that the operation may write where it reads.
template <class Builder>
auto evaluate(const Expression& expression, Builder& builder) {
  using Value = decltype(builder.constant(Rational()));
  std::vector<Value> values;
  const auto operate = [&](ValueFunction function, std::array<Value, 3> reads, bool last) {
    for (std::size_t i = 0; i < arity(function); ++i) builder.release(reads[i]);
    return builder.operate(function, reads, last);
  };
  const auto power = [&](const Value& x, int n, bool last) {
    const int factors = std::abs(n);
    if (factors == 0) return builder.constant(1);
    if (factors == 1 && n > 0) return x;
    Value product = x;
    for (int i = 1; i < factors; ++i) {
      const bool final_factor = i + 1 == factors;
      if (i > 1) builder.release(product);
      if (final_factor) builder.release(x);
      product =
          builder.operate(ValueFunction::multiply, {product, x, {}}, last && final_factor && n > 0);
    }
    if (n > 0) return product;
    return operate(ValueFunction::divide, {builder.constant(1), product, {}}, last);
  };
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const ExpressionNode& node = expression[i];
    const bool last = i + 1 == expression.size();
    const std::size_t count = operands(node.kind);
    if (values.size() < count) throw std::logic_error("compile: an operand is missing");
    std::array<Value, 3> reads{};
    for (std::size_t k = count; k-- > 0;) {
      reads[k] = values.back();
      values.pop_back();
    }
    if (node.kind == Kind::greater || node.kind == Kind::greater_equal) {
      std::swap(reads[0], reads[1]);
    }
    if (node.kind == Kind::number) {
      values.push_back(builder.constant(number_value(node.spelling)));
    } else if (node.kind == Kind::slot) {
      values.push_back(builder.slot(node));
    } else if (node.kind == Kind::power) {
      values.push_back(power(reads[0], node.exponent, last));
    } else {
      values.push_back(operate(function_of(node.kind), reads, last));
    }
  }
  if (values.size() != 1) throw std::logic_error("compile: no single expression");
  return values.back();
}

// The declared names, each once, with the places of their slots in a list.
class Names {
 public:
  explicit Names(Errors& errors) : errors_(errors) {}

  void declare(const Declaration::Named& named, std::size_t index) {
    const auto [found, is_new] = entries_.try_emplace(named.name, Entry{index, named.position});
    if (!is_new) {
      const Position first = found->second.position;
      errors_.add(named.position, named.name + " is declared twice, first at " +
                                      std::to_string(first.line) + ":" +
                                      std::to_string(first.column) + "; rename one");
    }
  }
  std::optional<std::size_t> find(const std::string& name, Position position) {
    const auto found = entries_.find(name);
    if (found != entries_.end()) return found->second.index;
    errors_.add(position, "no slot is called " + name + "; declare it, or correct its name");
    return std::nullopt;
  }

 private:
  struct Entry {
    std::size_t index;
    Position position;
  };
  Errors& errors_;
  std::unordered_map<std::string, Entry> entries_;
};

std::optional<Rational> initial_of(const Declaration::Named& named) {
  if (named.initial.empty()) return std::nullopt;
  return number_value(named.initial);
}

// Over arrays.

bool holds(Scope coarse, Scope fine) {
  return coarse == fine || coarse == Scope::shared || fine == Scope::coordinate ||
         (coarse == Scope::parameter && fine != Scope::shared);
}
// The coarsest scope that both hold.
Scope common(Scope a, Scope b) {
  if (holds(a, b)) return b;
  return holds(b, a) ? a : Scope::coordinate;
}

const char* each(Scope scope) {
  constexpr std::array<const char*, kScopes> names{"one value in all", "one value a parameter",
                                                   "one value a row", "one value a column",
                                                   "one value a coordinate"};
  return names[index_of(scope)];
}

class ArrayCompiler {
 public:
  struct Value {
    ArraySlot slot;
    std::size_t available = 0;  // the list of statements (lists_) after which it has its value
    bool reusable = false;      // a temporary of the assignment at hand
    bool in_target = false;     // the assignment at hand is done
  };

  ArrayCompiler(const std::string& file, const ProgramText& text)
      : text_(text), errors_(file), names_(errors_), lists_(text.assignments.size() + 1) {}

  Result<ArrayProgram> compile() {
    program_.name = text_.name;
    for (const Declaration& declaration : text_.declarations) declare(declaration);
    for (std::size_t i = 0; i < text_.assignments.size(); ++i) assign(i);
    if (errors_.first()) return *errors_.first();
    for (std::vector<ArrayProgram::Statement>& list : lists_) {
      std::move(list.begin(), list.end(), std::back_inserter(program_.statements));
    }
    return std::move(program_);
  }

  Value slot(const ExpressionNode& node) {
    const std::optional<std::size_t> index = names_.find(node.spelling, node.position);
    if (!index) return {};
    const Declared& read = declared_[*index];
    if (read.role == Role::temporary && read.available == 0) {
      errors_.add(node.position, "the temporary " + node.spelling +
                                     " is read before it is assigned; assign it first, or declare "
                                     "it as state");
    }
    if (!reducing_ && !holds(read.slot.scope, scope_)) {
      const std::string& target = text_.assignments[assignment_].target;
      errors_.add(node.position, target + " has " + each(scope_) + " and reads " + node.spelling +
                                     ", which has " + each(read.slot.scope) +
                                     "; use sum(...) or mean(...), or declare " + target +
                                     " finer");
    }
    return {read.slot, read.available};
  }

  Value constant(const Rational& value) {
    const auto [found, is_new] = constants_.try_emplace(value);
    if (is_new) found->second = new_slot(Scope::shared, {"", Role::constant, value});
    return {found->second};
  }

  void release(const Value& value) {
    if (value.reusable) free_[index_of(value.slot.scope)].push_back(value.slot);
  }

  Value operate(ValueFunction function, const std::array<Value, 3>& reads, bool last) {
    Value result;
    ArrayAssignment assignment{{}, function, {}};
    for (std::size_t i = 0; i < arity(function); ++i) {
      assignment.reads[i] = reads[i].slot;
      result.slot.scope = common(result.slot.scope, reads[i].slot.scope);
      result.available = std::max(result.available, reads[i].available);
    }
    if (result.slot.scope != scope_) {
      result.slot = new_temporary(result.slot.scope);
    } else {
      result.available = assignment_ + 1;
      result.in_target = last && !reducing_;
      result.reusable = !result.in_target;
      result.slot = result.in_target ? target_ : free_temporary();
    }
    assignment.target = result.slot;
    add(result.available, assignment);
    return result;
  }

 private:
  struct Declared {
    ArraySlot slot;
    Role role;
    std::size_t available = 0;  // as a Value's
  };

  ArraySlot new_slot(Scope scope, ArrayProgram::SlotInfo info) {
    std::vector<ArrayProgram::SlotInfo>& slots = program_.slots[index_of(scope)];
    if (slots.size() > std::numeric_limits<std::uint16_t>::max()) {
      errors_.add(position_, std::string("more than 65536 slots with ") + each(scope) +
                                 "; make the program shorter");
      return {scope, 0};
    }
    slots.push_back(std::move(info));
    return {scope, static_cast<std::uint16_t>(slots.size() - 1)};
  }
  ArraySlot new_temporary(Scope scope) {
    return new_slot(scope, {"", Role::temporary, std::nullopt});
  }
  ArraySlot free_temporary() {
    std::vector<ArraySlot>& free = free_[index_of(scope_)];
    if (free.empty()) return new_temporary(scope_);
    const ArraySlot slot = free.back();
    free.pop_back();
    return slot;
  }

  void add(std::size_t list, std::variant<ArrayAssignment, ArrayProgram::Reduction> does) {
    lists_[list].push_back({std::move(does), position_});
  }

  void declare(const Declaration& declaration) {
    if (declaration.kind == Declaration::Kind::coordinate) {
      errors_.add(declaration.position,
                  "a program over arrays has no single coordinates; declare state, or name every "
                  "slot as whole programs do");
      return;
    }
    const auto [scope, role] = meaning(declaration.kind);
    for (const Declaration::Named& named : declaration.slots) {
      position_ = named.position;
      if ((role == Role::parameter || role == Role::gradient) && program_.find(role)) {
        errors_.add(named.position, std::string("a second ") +
                                        (role == Role::parameter ? "parameter" : "gradient") +
                                        "; a program has one, declare " + named.name + " as state");
      }
      names_.declare(named, declared_.size());
      declared_.push_back({new_slot(scope, {named.name, role, initial_of(named)}), role});
    }
  }

  static std::pair<Scope, Role> meaning(Declaration::Kind kind) {
    switch (kind) {
      case Declaration::Kind::shared:
        return {Scope::shared, Role::state};
      case Declaration::Kind::parameter:
        return {Scope::coordinate, Role::parameter};
      case Declaration::Kind::gradient:
        return {Scope::coordinate, Role::gradient};
      case Declaration::Kind::temporary:
        return {Scope::coordinate, Role::temporary};
      case Declaration::Kind::per_parameter:
        return {Scope::parameter, Role::state};
      case Declaration::Kind::per_row:
        return {Scope::row, Role::state};
      case Declaration::Kind::per_column:
        return {Scope::column, Role::state};
      case Declaration::Kind::state:
      case Declaration::Kind::coordinate:
        break;
    }
    return {Scope::coordinate, Role::state};
  }

  Scope scope_of(const Expression& expression) {
    Scope scope = Scope::shared;
    for (const ExpressionNode& node : expression) {
      if (node.kind != Kind::slot) continue;
      const std::optional<std::size_t> index = names_.find(node.spelling, node.position);
      if (index) scope = common(scope, declared_[*index].slot.scope);
    }
    return scope;
  }

  void assign(std::size_t index) {
    const Assigned& assigned = text_.assignments[index];
    const std::optional<std::size_t> target = names_.find(assigned.target, assigned.position);
    if (!target) return;
    Declared& declared = declared_[*target];
    assignment_ = index;
    position_ = assigned.position;
    target_ = declared.slot;
    scope_ = target_.scope;
    reducing_ = assigned.reduction != Assigned::Reduction::none;
    if (reducing_) {
      scope_ = scope_of(assigned.expression);
      if (scope_ == target_.scope || !holds(target_.scope, scope_)) {
        errors_.add(assigned.position, assigned.target + " has " + each(target_.scope) +
                                           " and reduces what has " + each(scope_) +
                                           "; reduce finer slots, or assign without sum or mean");
      }
    }
    // Coarse slots count as shared: one that two assignments used would join what each reads.
    if (scope_ != Scope::coordinate) free_[index_of(scope_)].clear();
    Value value = evaluate(assigned.expression, *this);
    declared.available = index + 1;
    if (reducing_) {
      // x^0 reads nothing: its one number stands for every element that is added up.
      if (value.slot.scope != scope_) {
        const ArraySlot spread = new_temporary(scope_);
        add(index + 1, ArrayAssignment{spread, ValueFunction::copy, {value.slot}});
        value = {spread};
      }
      const bool mean = assigned.reduction == Assigned::Reduction::mean;
      add(index + 1, ArrayProgram::Reduction{target_, value.slot, mean, assigned.all_reduce});
      release(value);
    } else if (!value.in_target) {
      add(index + 1, ArrayAssignment{target_, ValueFunction::copy, {value.slot}});
    }
  }

  const ProgramText& text_;
  ArrayProgram program_;
  Errors errors_;
  Names names_;
  std::vector<Declared> declared_;
  std::map<Rational, ArraySlot> constants_;
  std::array<std::vector<ArraySlot>, kScopes> free_;
  // What is done before all assignments; then, for each, what it does and what is done after it.
  std::vector<std::vector<ArrayProgram::Statement>> lists_;

  // Of the assignment at hand; scope_ is its target's or, of a reduction, its expression's.
  std::size_t assignment_ = 0;
  Position position_;
  ArraySlot target_;
  Scope scope_ = Scope::shared;
  bool reducing_ = false;
};

class WholeCompiler {
 public:
  struct Value {
    Slot slot = 0;
    bool reusable = false;   // a temporary of the assignment at hand
    bool in_target = false;  // the assignment at hand is done
  };

  WholeCompiler(const std::string& file, const ProgramText& text)
      : text_(text), errors_(file), names_(errors_) {}

  Result<ClassifiedProgram> compile() {
    for (const Declaration& declaration : text_.declarations) declare(declaration);
    for (const Assigned& assigned : text_.assignments) assign(assigned);
    if (errors_.first()) return *errors_.first();

    ClassifiedProgram classified{{}, Classification(slots_.size()), {}, {}};
    ClassifiedProgram::Stage stage;
    stage.program = {slots_.size(), std::move(constants_), std::move(setup_)};
    stage.positions.resize(stage.program.assignments.size());
    std::move(assignments_.begin(), assignments_.end(),
              std::back_inserter(stage.program.assignments));
    stage.positions.insert(stage.positions.end(), positions_.begin(), positions_.end());
    stage.collective.slots = slots_.size();
    classified.stages.push_back(std::move(stage));
    for (Slot slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].coordinate) classified.classification.assign(slot, *slots_[slot].coordinate);
      classified.names.push_back(std::move(slots_[slot].name));
      classified.initial.push_back(std::move(slots_[slot].initial));
    }
    return classified;
  }

  Value slot(const ExpressionNode& node) {
    return {static_cast<Slot>(names_.find(node.spelling, node.position).value_or(0))};
  }

  Value constant(const Rational& value) {
    const auto [found, is_new] = constant_slots_.try_emplace(value);
    if (is_new) {
      found->second = new_slot({"", std::nullopt, std::nullopt});
      setup_.push_back(
          {found->second, ValueFunction::constant, {static_cast<Slot>(constants_.size())}});
      constants_.push_back(value);
    }
    return {found->second};
  }

  void release(const Value& value) {
    if (value.reusable) free_[coordinate_].push_back(value.slot);
  }

  Value operate(ValueFunction function, const std::array<Value, 3>& reads, bool last) {
    const Value result{last ? target_ : free_temporary(), !last, last};
    add({result.slot, function, {reads[0].slot, reads[1].slot, reads[2].slot}});
    return result;
  }

 private:
  struct SlotInfo {
    std::string name;
    std::optional<Coordinate> coordinate;
    std::optional<Rational> initial;
  };

  Slot new_slot(SlotInfo info) {
    slots_.push_back(std::move(info));
    return static_cast<Slot>(slots_.size() - 1);
  }
  Slot free_temporary() {
    std::vector<Slot>& free = free_[coordinate_];
    if (free.empty()) return new_slot({"", coordinate_, std::nullopt});
    const Slot slot = free.back();
    free.pop_back();
    return slot;
  }

  void add(const Assignment& assignment) {
    assignments_.push_back(assignment);
    positions_.push_back(position_);
  }

  void declare(const Declaration& declaration) {
    const bool shared = declaration.kind == Declaration::Kind::shared;
    if (!shared && declaration.kind != Declaration::Kind::coordinate) {
      errors_.add(declaration.position,
                  "a program with single coordinates has no arrays; declare its slots as shared or "
                  "of a coordinate");
    }
    for (const Declaration::Named& named : declaration.slots) {
      names_.declare(named, slots_.size());
      std::optional<Coordinate> coordinate;
      if (!shared) coordinate = declaration.coordinate;
      new_slot({named.name, coordinate, initial_of(named)});
    }
  }

  void assign(const Assigned& assigned) {
    if (assigned.reduction != Assigned::Reduction::none) {
      errors_.add(assigned.position,
                  "sum and mean are for programs over arrays; add the slots one by one");
    }
    const std::optional<std::size_t> target = names_.find(assigned.target, assigned.position);
    if (!target) return;
    target_ = static_cast<Slot>(*target);
    coordinate_ = slots_[target_].coordinate;
    position_ = assigned.position;
    // A shared slot that two assignments used would join what each reads.
    if (!coordinate_) free_[coordinate_].clear();
    const Value value = evaluate(assigned.expression, *this);
    if (!value.in_target) add({target_, ValueFunction::copy, {value.slot}});
  }

  const ProgramText& text_;
  Errors errors_;
  Names names_;  // places in slots_
  std::vector<SlotInfo> slots_;
  std::vector<Rational> constants_;
  std::vector<Assignment> setup_, assignments_;  // the constants', then the text's
  std::vector<Position> positions_;              // of assignments_
  std::map<Rational, Slot> constant_slots_;
  std::map<std::optional<Coordinate>, std::vector<Slot>> free_;

  // Of the assignment at hand.
  Position position_;
  Slot target_ = 0;
  std::optional<Coordinate> coordinate_;
};

}  // namespace

Result<ArrayProgram> compile_array(const std::string& file, const ProgramText& text) {
  return ArrayCompiler(file, text).compile();
}

Result<ClassifiedProgram> compile_whole(const std::string& file, const ProgramText& text) {
  return WholeCompiler(file, text).compile();
}

}  // namespace shardproof
