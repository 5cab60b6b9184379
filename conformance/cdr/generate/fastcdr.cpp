// Prints every case that Fast CDR 1.0 can encode, as plain CDR in both byte orders. `fastcdr.py`
// generates the cases, and `vectors.py` reads the output.
#include "fastcdr.h"
#include <cstdio>
#include <fastcdr/FastBuffer.h>

using eprosima::fastcdr::FastBuffer;

constexpr size_t CAPACITY = 1 << 16;

// Fast CDR leaves the old contents of the buffer in the padding, so the buffer is filled with zeros
// first. It writes the header with empty options. The padding at the end and its count are added
// here.
static void print_encoding(const char* name, Cdr::Endianness order, const std::function<void(Cdr&)>& calls)
{
    std::vector<char> memory(CAPACITY);
    FastBuffer buffer(memory.data(), memory.size());
    Cdr cdr(buffer, order, Cdr::DDS_CDR);
    cdr.serialize_encapsulation();
    calls(cdr);
    std::vector<unsigned char> bytes(memory.begin(), memory.begin() + cdr.getSerializedDataLength());
    bytes[3] = static_cast<unsigned char>((4 - bytes.size() % 4) % 4);
    bytes.resize(bytes.size() + bytes[3]);
    std::printf("%s xcdr1 %s ", name, order == Cdr::LITTLE_ENDIANNESS ? "le" : "be");
    for (unsigned char byte : bytes)
    {
        std::printf("%02x", byte);
    }
    std::printf("\n");
}

void emit(const char* name, const std::function<void(Cdr&)>& calls)
{
    print_encoding(name, Cdr::LITTLE_ENDIANNESS, calls);
    print_encoding(name, Cdr::BIG_ENDIANNESS, calls);
}

int main()
{
    all_cases();
}
