// Benchmark of Fast CDR on the measured types. It encodes and decodes like code of Fast CDR's
// generator: one << or >> per member, on a reused buffer. bench/src/codecs/fastcdr.rs compiles and
// starts it.
//
// The argument names the workload. Standard input has the messages: their number, then length and
// bytes of each (numbers are 32 bits, little endian). The program prints "ok" if it decodes them
// and encodes the same bytes. To each line "encode NANOSECONDS" or "decode NANOSECONDS" it then
// measures a turn of about that length, and prints the nanoseconds per message.

#include <fastcdr/Cdr.h>
#include <fastcdr/FastBuffer.h>

#include <time.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

using eprosima::fastcdr::Cdr;
using eprosima::fastcdr::FastBuffer;

struct Entry {
    uint32_t update_action, price_level;
    std::string type;
    uint32_t open_close_settle_flag, security_id_source, security_id, rpt_seq;
    double px;
    uint32_t time;
    int32_t size;
    uint32_t number_of_orders;
    std::string trading_session_id;
    double net_chg_prev_day;
    uint32_t trade_volume;
    std::string trade_condition, tick_direction, quote_condition;
    uint32_t aggressor_side;
    std::string match_event_indicator;

    template <class Archive>
    void members(Archive&& each) {
        each(update_action), each(price_level), each(type), each(open_close_settle_flag), each(security_id_source);
        each(security_id), each(rpt_seq), each(px), each(time), each(size), each(number_of_orders);
        each(trading_session_id), each(net_chg_prev_day), each(trade_volume), each(trade_condition);
        each(tick_direction), each(quote_condition), each(aggressor_side), each(match_event_indicator);
    }
    void serialize(Cdr& cdr) const {
        const_cast<Entry*>(this)->members([&](auto& member) { cdr << member; });
    }
    void deserialize(Cdr& cdr) {
        members([&](auto& member) { cdr >> member; });
    }
};

struct MarketData {
    bool is_echo;
    uint32_t counter, security_id;
    std::string appl_version_id, message_type, sender_comp_id;
    uint32_t msg_seq_num, sending_time, trade_date;
    std::vector<Entry> entries;

    template <class Archive>
    void members(Archive&& each) {
        each(is_echo), each(counter), each(security_id), each(appl_version_id), each(message_type);
        each(sender_comp_id), each(msg_seq_num), each(sending_time), each(trade_date), each(entries);
    }
};

struct Group {
    bool boolean;
    std::string string;
    int8_t int8;
    uint8_t uint8;
    int16_t int16;
    uint16_t uint16;
    int32_t int32;
    uint32_t uint32;
    int64_t int64;
    uint64_t uint64;
};

template <size_t N>
struct CodecsTest {
    std::array<Group, N> groups;

    template <class Archive>
    void members(Archive&& each) {
        for (auto& group : groups) {
            each(group.boolean), each(group.string), each(group.int8), each(group.uint8), each(group.int16);
            each(group.uint16), each(group.int32), each(group.uint32), each(group.int64), each(group.uint64);
        }
    }
};

struct ProcessorProbe {
    uint64_t idle_time, system_time, user_time;

    template <class Archive>
    void members(Archive&& each) {
        each(idle_time), each(system_time), each(user_time);
    }
};

struct LinuxProcessorProbe : ProcessorProbe {
    uint64_t nice_time, iowait_time, irq_time, soft_irq_time;

    template <class Archive>
    void members(Archive&& each) {
        ProcessorProbe::members(each);
        each(nice_time), each(iowait_time), each(irq_time), each(soft_irq_time);
    }
};

struct Floats {
    uint64_t stamp;
    std::string frame_id;
    uint32_t height, width;
    std::vector<float> data;

    template <class Archive>
    void members(Archive&& each) {
        each(stamp), each(frame_id), each(height), each(width), each(data);
    }
};

static uint64_t thread_time() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return uint64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

static uint32_t read_number() {
    uint32_t number = 0;
    return fread(&number, 4, 1, stdin) == 1 ? number : 0;
}

static std::vector<std::string> read_messages() {
    std::vector<std::string> messages(read_number());
    for (auto& message : messages) {
        message.resize(read_number());
        if (fread(&message[0], 1, message.size(), stdin) != message.size()) message.clear();
    }
    return messages;
}

template <class T>
static size_t encode(const T& message, FastBuffer& buffer) {
    Cdr cdr(buffer, Cdr::LITTLE_ENDIANNESS, Cdr::DDS_CDR);
    const_cast<T&>(message).members([&](auto& member) { cdr << member; });
    size_t length = cdr.getSerializedDataLength();
    asm volatile("" : : "r"(buffer.getBuffer()), "r"(length) : "memory");
    return length;
}

template <class T>
static void decode(std::string& bytes, T& message) {
    FastBuffer buffer(&bytes[0], bytes.size());
    Cdr cdr(buffer, Cdr::LITTLE_ENDIANNESS, Cdr::DDS_CDR);
    message.members([&](auto& member) { cdr >> member; });
    asm volatile("" : : "r"(&message) : "memory");
}

template <class F>
static double measure(uint64_t least, size_t messages, F round) {
    size_t rounds = 0, step = 1;
    uint64_t start = thread_time(), took = 0;
    // Reading the clock is a system call, so the interval between readings doubles.
    for (; took < least; step *= 2) {
        for (size_t i = 0; i < step; ++i) round();
        rounds += step;
        took = thread_time() - start;
    }
    return double(took) / double(rounds * messages);
}

template <class T>
static int serve() {
    auto encoded = read_messages();
    std::vector<T> messages(encoded.size());
    std::vector<char> memory(1 << 20);
    FastBuffer buffer(memory.data(), memory.size());
    for (size_t i = 0; i < encoded.size(); ++i) {
        decode(encoded[i], messages[i]);
        size_t length = encode(messages[i], buffer);
        if (length != encoded[i].size() || memcmp(memory.data(), encoded[i].data(), length) != 0) {
            printf("message %zu: Fast CDR encodes other bytes\n", i);
            return 1;
        }
    }
    printf("ok\n");
    fflush(stdout);
    T back{};
    char what[16];
    unsigned long long least;
    while (scanf("%15s %llu", what, &least) == 2) {
        double ns = strcmp(what, "encode") == 0
            ? measure(least, messages.size(), [&] { for (auto& message : messages) encode(message, buffer); })
            : measure(least, encoded.size(), [&] { for (auto& bytes : encoded) decode(bytes, back); });
        printf("%f\n", ns);
        fflush(stdout);
    }
    return 0;
}

int main(int count, char** arguments) {
    std::string workload = count > 1 ? arguments[1] : "";
    if (workload == "MarketData") return serve<MarketData>();
    if (workload == "CodecsTest_10") return serve<CodecsTest<1>>();
    if (workload == "CodecsTest_50") return serve<CodecsTest<5>>();
    if (workload == "CodecsTest_100") return serve<CodecsTest<10>>();
    if (workload == "CodecsTest_250") return serve<CodecsTest<25>>();
    if (workload == "CodecsTest_500") return serve<CodecsTest<50>>();
    if (workload == "ProcessorProbe") return serve<ProcessorProbe>();
    if (workload == "LinuxProcessorProbe") return serve<LinuxProcessorProbe>();
    if (workload == "100 KB of floats") return serve<Floats>();
    fprintf(stderr, "unknown workload '%s'\n", workload.c_str());
    return 2;
}
