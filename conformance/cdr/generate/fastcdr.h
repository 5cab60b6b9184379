// What the generated cases need: Fast CDR and the function that prints one in both byte orders.
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
