/// \file
/// The C++20 API of fasa: a tiered KV cache for any number of sequences, and attention over it.
///
///   Runtime         fasa owns the pages; callers have sequences and steps
///   PagedRuntime    the caller owns page ids, as serving engines do
///   sparse_decode   one decode step over plain tensors; nothing is cached
///
/// It wraps the C API, <fasa/fasa.h>, and needs only libfasa.so: a program works with any later
/// build of the same minor version, whichever compilers built the two. Shapes, units and threading
/// are documented there. This header adds owners that free their handles, exceptions instead of
/// statuses, spans, and steps that abort themselves.
#ifndef FASA_FASA_HPP
#define FASA_FASA_HPP

#include <fasa/device.hpp>
#include <fasa/errors.hpp>
#include <fasa/options.hpp>
#include <fasa/pages.hpp>
#include <fasa/runtime.hpp>
#include <fasa/tensors.hpp>

#endif  // FASA_FASA_HPP
