// Writes and reads CDR with ACE, the library below the ORB TAO. `corba.py` starts it. Each line of
// standard input is a request, and each gets an answer of one line:
//
// - `write OPERATION VALUE ..`: the bytes in hexadecimal digits, in the processor's byte order
// - `read ORDER HEX OPERATION ..`: the values; ORDER is 0 if the bytes are big-endian, and 1 if
//   they are little-endian
//
// An operation is `octet`, `ulong`, `wchar`, `wstring` or `quad`.
//
// Wide characters are encoded as in GIOP 1.1, in two octets. Wide strings are encoded as in GIOP
// 1.2: the length in octets, and no terminator. ACE's `long double` has the processor's format, so
// ACE determines only the alignment of `quad`. The octets are those of the compiler's binary128.
#include <ace/CDR_Stream.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

static std::string hex(const unsigned char *bytes, size_t size) {
    std::string text;
    char two[3];
    for (size_t i = 0; i < size; i++) {
        std::snprintf(two, sizeof two, "%02x", bytes[i]);
        text += two;
    }
    return text;
}

static std::vector<unsigned char> unhex(const std::string &text) {
    std::vector<unsigned char> bytes;
    for (size_t at = 0; at + 1 < text.size(); at += 2) bytes.push_back(std::stoi(text.substr(at, 2), nullptr, 16));
    return bytes;
}

static std::string write(std::istream &operations) {
    ACE_OutputCDR out(size_t{1} << 16);
    std::string kind, value;
    while (operations >> kind >> value) {
        if (kind == "octet") {
            out.write_octet(std::stoul(value));
        } else if (kind == "ulong") {
            out.write_ulong(std::stoul(value));
        } else if (kind == "wchar") {
            out.set_version(1, 1);
            out.write_wchar(std::stoul(value, nullptr, 16));
        } else if (kind == "wstring") {
            out.set_version(1, 2);
            std::vector<ACE_CDR::WChar> units;
            auto octets = unhex(value.substr(1));
            for (size_t i = 0; i < octets.size(); i += 2) units.push_back(octets[i] << 8 | octets[i + 1]);
            units.push_back(0);
            out.write_wstring(units.size() - 1, units.data());
        } else if (kind == "quad") {
            __float128 number = std::strtod(value.c_str(), nullptr);
            unsigned char octets[16];
            std::memcpy(octets, &number, 16);
            out.align_write_ptr(ACE_CDR::LONGDOUBLE_ALIGN);
            out.write_octet_array(octets, 16);
        }
    }
    out.consolidate();
    return hex(reinterpret_cast<const unsigned char *>(out.begin()->rd_ptr()), out.total_length());
}

static std::string read(int order, const std::string &text, std::istream &operations) {
    auto bytes = unhex(text);
    ACE_InputCDR in(reinterpret_cast<const char *>(bytes.data()), bytes.size(), order);
    std::string kind, answer;
    while (operations >> kind) {
        std::ostringstream value;
        if (kind == "octet") {
            ACE_CDR::Octet octet = 0;
            in.read_octet(octet);
            value << unsigned{octet};
        } else if (kind == "ulong") {
            ACE_CDR::ULong number = 0;
            in.read_ulong(number);
            value << number;
        } else if (kind == "wchar") {
            in.set_version(1, 1);
            ACE_CDR::WChar unit = 0;
            in.read_wchar(unit);
            value << std::hex << static_cast<unsigned>(unit);
        } else if (kind == "wstring") {
            in.set_version(1, 2);
            ACE_CDR::WChar *units = nullptr;
            in.read_wstring(units);
            value << 'w';
            for (ACE_CDR::WChar *unit = units; unit && *unit; unit++) {
                unsigned char two[2] = {static_cast<unsigned char>(*unit >> 8), static_cast<unsigned char>(*unit)};
                value << hex(two, 2);
            }
            delete[] units;
        } else if (kind == "quad") {
            unsigned char octets[16] = {};
            in.align_read_ptr(ACE_CDR::LONGDOUBLE_ALIGN);
            in.read_octet_array(octets, 16);
            if (order != ACE_CDR_BYTE_ORDER) std::reverse(octets, octets + 16);
            __float128 number;
            std::memcpy(&number, octets, 16);
            char digits[64];
            std::snprintf(digits, sizeof digits, "%a", static_cast<double>(number));
            value << digits;
        }
        answer += (answer.empty() ? "" : " ") + value.str();
    }
    return in.good_bit() && in.length() == 0 ? answer : "the bytes do not have these values: " + answer;
}

int main() {
    ACE_OutputCDR::wchar_maxbytes(2);
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string verb, text;
        int order = 0;
        words >> verb;
        if (verb == "write") {
            std::cout << write(words) << std::endl;
        } else {
            words >> order >> text;
            std::cout << read(order, text, words) << std::endl;
        }
    }
}
