#include "bindings/model/gpt_options.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string_view>
#include <type_traits>

#include "bindings/arrays/spellings.h"
#include "bindings/bindings.h"
#include "bindings/model/gpt.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "Gpt";
using Seed = std::optional<std::uint64_t>;

bool is_size(const OptionField& field) {
  return field.range == OptionField::Range::size;
}

// What a value of an option is called in Python.
template <typename Value>
constexpr const char* type_of() {
  if constexpr (std::is_same_v<Value, bool>) return "bool";
  if constexpr (std::is_same_v<Value, dim_t>) return "int";
  if constexpr (std::is_same_v<Value, double>) return "float";
  if constexpr (std::is_same_v<Value, Rotary>) return "Rotary | None";
  if constexpr (std::is_same_v<Value, Seed>) return "int | None";
  if constexpr (std::is_same_v<Value, DType>) return "object";
  return "str";
}

template <typename Value>
void read(const OptionField& field, nb::handle from, Value& to) {
  if (nb::try_cast(from, to)) return;
  throw nb::type_error(format_text("{}: {} must be {}, got {}", kName, field.name, type_of<Value>(),
                                   nb::type_name(from.type()).c_str())
                           .c_str());
}

struct FieldReader {
  template <typename Value>
  void operator()(const OptionField& field, Value& value) {
    const nb::object given = take(field);
    if (!given.is_valid()) return;
    if constexpr (HasWords<Value>) {
      std::string word;
      read(field, given, word);
      value = value_for<Value>(word, format_text("{}: {}", kName, field.name));
    } else {
      read(field, given, value);
    }
  }
  void operator()(const OptionField& field, Rotary& rotary) {
    const nb::object given = take(field);
    if (given.is_valid() && !given.is_none()) read(field, given, rotary);
  }
  void operator()(const OptionField& field, DType& dtype) {
    const nb::object given = take(field);
    if (given.is_valid()) dtype = dtype_of(given, kName);
  }

  // The argument for a field; an invalid object: there is none.
  nb::object take(const OptionField& field) {
    nb::object given;
    if (is_size(field) && next < positional.size()) given = positional[next++];
    if (!keywords.contains(field.name)) {
      if (is_size(field) && !given.is_valid()) {
        throw nb::type_error(format_text("{}: {} is missing", kName, field.name).c_str());
      }
      return given;
    }
    if (given.is_valid()) {
      throw nb::type_error(format_text("{}: {} is given twice", kName, field.name).c_str());
    }
    given = keywords[field.name];
    nb::del(keywords[field.name]);
    return given;
  }

  const nb::args& positional;
  nb::dict& keywords;
  std::size_t next = 0;  // of positional
};

// The value of the field of that name.
template <typename Value>
Value value_of(const GptOptions& options, const char* name) {
  Value found{};
  for_fields(options, [&]<typename Other>(const OptionField& field, const Other& value) {
    if constexpr (std::is_same_v<Other, Value>) {
      if (std::string_view(field.name) == name) found = value;
    }
  });
  return found;
}

// A value as Python has it.
template <typename Value>
nb::object to_object(const GptOptions& options, const Value& value) {
  if constexpr (HasWords<Value> || std::is_same_v<Value, DType>) {
    return nb::str(name(value));
  } else if constexpr (std::is_same_v<Value, Rotary>) {
    return options.positions == PositionKind::rotary ? nb::cast(value) : nb::none();
  } else {
    return nb::cast(value);
  }
}

std::string shown(const nb::object& value) {
  return nb::repr(value).c_str();
}

}  // namespace

GptOptions options_from(const nb::args& positional, nb::dict& keywords) {
  GptOptions options;
  FieldReader reader{positional, keywords};
  for_fields(options, reader);
  if (reader.next < positional.size()) {
    throw nb::type_error(format_text("{}: {} positional arguments, there are {}; the others are "
                                     "keywords",
                                     kName, positional.size(), reader.next)
                             .c_str());
  }
  return options;
}

std::string options_signature() {
  const GptOptions unsaid;
  std::string sizes;
  std::string others;
  for_fields(unsaid, [&]<typename Value>(const OptionField& field, const Value& value) {
    if (is_size(field)) {
      sizes += format_text("{}: {}, ", field.name, type_of<Value>());
    } else {
      others += format_text(", {}: {} = {}", field.name, type_of<Value>(),
                            shown(to_object(unsaid, value)));
    }
  });
  return sizes + "*" + others;
}

std::string option_names() {
  std::string names;
  const GptOptions any;
  for_fields(any, [&](const OptionField& field, const auto&) {
    names += format_text("{}{}", names.empty() ? "" : ", ", field.name);
  });
  return names;
}

nb::dict options_dict(const GptOptions& options) {
  nb::dict named;
  for_fields(options, [&](const OptionField& field, const auto& value) {
    named[field.name] = to_object(options, value);
  });
  return named;
}

void change_options(GptOptions& options, const nb::dict& given, const char* function) {
  nb::dict all = options_dict(options);
  for (const auto [key, value] : given) {
    if (!all.contains(key)) {
      throw nb::type_error(format_text("{}: a Gpt has no option {}; there are {}", function,
                                       nb::str(key).c_str(), option_names())
                               .c_str());
    }
    all[key] = value;
  }
  options = options_from(nb::borrow<nb::args>(nb::make_tuple()), all);
}

std::string options_text(const GptOptions& checked) {
  GptOptions sizes;
  for_fields(sizes, [&]<typename Value>(const OptionField& field, Value& value) {
    if (is_size(field)) value = value_of<Value>(checked, field.name);
  });
  const GptOptions unsaid = checked_options(sizes, kName);
  std::string text;
  for_fields(checked, [&]<typename Value>(const OptionField& field, const Value& value) {
    constexpr bool kAlways = std::is_same_v<Value, PositionKind>;
    constexpr bool kNever = std::is_same_v<Value, Seed>;
    const std::string here = shown(to_object(checked, value));
    const std::string there = shown(to_object(unsaid, value_of<Value>(unsaid, field.name)));
    if (kNever || (!kAlways && !is_size(field) && here == there)) return;
    text += format_text("{}{}={}", text.empty() ? "" : ", ", field.name, here);
  });
  return text;
}

void bind_options(nb::class_<Model>& model) {
  const GptOptions any;
  for_fields(any, [&]<typename Value>(const OptionField& field, const Value&) {
    const std::string signature = format_text(
        "def {}(self) -> {}", field.name, std::is_same_v<Value, DType> ? "str" : type_of<Value>());
    model.def_prop_ro(
        field.name,
        [option = field.name](const Model& m) {
          const GptOptions& options = m.gpt.options();
          return to_object(options, value_of<Value>(options, option));
        },
        nb::sig(signature.c_str()));
  });
}

}  // namespace cephalo::python
