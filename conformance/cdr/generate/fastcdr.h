// Declarations for the C++ file that `fastcdr.py` generates: Fast CDR, and `emit`, which prints a
// case in both byte orders.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>
#include <fastcdr/Cdr.h>

using eprosima::fastcdr::Cdr;

void emit(const char* name, const std::function<void(Cdr&)>& calls);
void all_cases();
