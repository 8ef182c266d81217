#include "kernels/row_format.h"

namespace fasa {

std::string_view row_dtype_name(RowDType dtype) {
  return dtype.is_coded() ? "int8" : dtype_name(dtype.elements());
}

std::optional<RowDType> parse_row_dtype(std::string_view name) {
  if (name == "int8") return RowDType(RowDType::kInt8);
  if (const auto dtype = parse_dtype(name)) return RowDType(*dtype);
  return std::nullopt;
}

}  // namespace fasa
