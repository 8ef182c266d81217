/// \file
/// fasa in C++20: a KV cache in tiers for any number of sequences, and attention from it.
///
///   Runtime         fasa owns the pages; callers have sequences and steps
///   PagedRuntime    the caller owns page ids, as serving engines do
///   sparse_decode   one decode step over plain tensors; nothing is kept
///
/// All of it stands on the C interface, <fasa/fasa.h>, and needs libfasa.so alone: a program keeps
/// working with any later build of the same minor version, whatever compiler made either. Shapes,
/// units and threading are written there, once. What this adds: owners that free what they hold,
/// exceptions in place of statuses, spans, and steps that abort themselves.
#ifndef FASA_FASA_HPP
#define FASA_FASA_HPP

#include <fasa/device.hpp>
#include <fasa/errors.hpp>
#include <fasa/options.hpp>
#include <fasa/pages.hpp>
#include <fasa/runtime.hpp>
#include <fasa/tensors.hpp>

#endif  // FASA_FASA_HPP
