// A program that knows only DDS: eProsima Fast DDS 2. It says what `peer.py` says in the modes of the same names.
//
//     fast write DOMAIN TOPIC TYPE    waits for a reader, writes three samples, disposes of the first one if its type has a key
//     fast keep DOMAIN TOPIC TYPE     writes three samples at once, and keeps them for late joiners
//     fast read DOMAIN TOPIC TYPE     prints each sample that it reads
//     fast strict DOMAIN TOPIC TYPE   requests a deadline, and prints the policy that does not match
//
// TYPE is Pump, Note, or Text, which is that of ROS 2 with what its middlewares say of it. With a folder as a fifth argument, it joins with DDS Security, by the files that `polywire identity sign --dds`
// makes there. It ends when its standard input does.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fastcdr/Cdr.h>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/DataReaderListener.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/Topic.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>

using namespace eprosima::fastdds::dds;
using namespace eprosima::fastrtps::rtps;
using eprosima::fastcdr::Cdr;
using eprosima::fastcdr::FastBuffer;

static void say(const std::string& text) { std::cout << text << std::endl; }

struct Pump {
    static constexpr const char* NAME = "plant::Pump";
    static constexpr const char* SAID = "";
    static constexpr bool KEYED = true;
    uint32_t id = 0;
    double level = 0;
    std::string name;

    static Pump numbered(int number) { return {uint32_t(number), number / 2.0, "pump " + std::to_string(number)}; }
    uint32_t key() const { return id; }
    void write(Cdr& to) const { to << id << level << name; }
    void read(Cdr& from) { from >> id >> level >> name; }
    std::string text() const {
        std::ostringstream text;
        text << "Pump(id=" << id << ", level=" << level << (level == int(level) ? ".0" : "") << ", name='" << name << "')";
        return text.str();
    }
};

struct Note {
    static constexpr const char* NAME = "plant::Note";
    static constexpr const char* SAID = "";
    static constexpr bool KEYED = false;
    std::string words;
    std::vector<int32_t> marks;

    static Note numbered(int number) { return {"note " + std::to_string(number), {number, -number}}; }
    uint32_t key() const { return 0; }
    void write(Cdr& to) const { to << words << marks; }
    void read(Cdr& from) { from >> words >> marks; }
    std::string text() const {
        std::ostringstream text;
        text << "Note(text='" << words << "', marks=[";
        for (size_t at = 0; at < marks.size(); ++at) text << (at > 0 ? ", " : "") << marks[at];
        text << "])";
        return text.str();
    }
};

struct Text {
    static constexpr const char* NAME = "std_msgs::msg::dds_::String_";
    static constexpr const char* SAID =
        "typehash=RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18;";
    static constexpr bool KEYED = false;
    std::string data;

    static Text numbered(int number) { return {"text " + std::to_string(number)}; }
    uint32_t key() const { return 0; }
    void write(Cdr& to) const { to << data; }
    void read(Cdr& from) { from >> data; }
    std::string text() const { return "Text(data='" + data + "')"; }
};

// What `fastddsgen` makes of a type, without an announcement of what the type is.
template <typename Of>
struct Type : TopicDataType {
    static constexpr uint32_t LONGEST = 1 << 18;

    Type() {
        setName(Of::NAME);
        m_typeSize = LONGEST;
        m_isGetKeyDefined = Of::KEYED;
    }

    bool serialize(void* value, SerializedPayload_t* payload) override {
        FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->max_size);
        Cdr cdr(buffer, Cdr::DEFAULT_ENDIAN, Cdr::DDS_CDR);
        payload->encapsulation = cdr.endianness() == Cdr::BIG_ENDIANNESS ? CDR_BE : CDR_LE;
        cdr.serialize_encapsulation();
        static_cast<Of*>(value)->write(cdr);
        payload->length = uint32_t(cdr.getSerializedDataLength());
        return true;
    }

    bool deserialize(SerializedPayload_t* payload, void* value) override {
        FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->length);
        Cdr cdr(buffer, Cdr::DEFAULT_ENDIAN, Cdr::DDS_CDR);
        cdr.read_encapsulation();
        static_cast<Of*>(value)->read(cdr);
        return true;
    }

    std::function<uint32_t()> getSerializedSizeProvider(void*) override {
        return [] { return LONGEST; };
    }

    void* createData() override { return new Of(); }
    void deleteData(void* value) override { delete static_cast<Of*>(value); }

    // A key of up to sixteen bytes is its own hash, with the high byte first.
    bool getKey(void* value, InstanceHandle_t* handle, bool) override {
        uint32_t key = static_cast<Of*>(value)->key();
        for (int at = 0; at < 16; ++at) handle->value[at] = at < 4 ? octet(key >> (24 - 8 * at)) : 0;
        return Of::KEYED;
    }
};

template <typename Of>
struct Reads : DataReaderListener {
    void on_data_available(DataReader* reader) override {
        Of value;
        SampleInfo info;
        while (reader->take_next_sample(&value, &info) == ReturnCode_t::RETCODE_OK) {
            std::string state = info.instance_state == ALIVE_INSTANCE_STATE ? "alive"
                : info.instance_state == NOT_ALIVE_DISPOSED_INSTANCE_STATE  ? "disposed"
                                                                            : "no writers";
            say(info.valid_data ? state + " " + value.text() : state);
        }
    }

    void on_requested_incompatible_qos(DataReader*, const RequestedIncompatibleQosStatus& status) override {
        say("incompatible " + std::to_string(status.last_policy_id));
    }
};

template <typename Of, typename Qos>
static Qos kept(Qos qos) {
    const std::string said = Of::SAID;
    qos.user_data().data_vec({said.begin(), said.end()});
    qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
    qos.durability().kind = TRANSIENT_LOCAL_DURABILITY_QOS;
    qos.history().kind = KEEP_ALL_HISTORY_QOS;
    return qos;
}

static void secure(PropertyPolicy& policy, const std::string& folder) {
    const auto set = [&](const std::string& name, const std::string& value) {
        policy.properties().emplace_back("dds.sec." + name, value);
    };
    const auto file = [&](const char* name) { return "file://" + folder + "/" + name; };
    set("auth.plugin", "builtin.PKI-DH");
    set("auth.builtin.PKI-DH.identity_ca", file("authority.pem"));
    set("auth.builtin.PKI-DH.identity_certificate", file("certificate.pem"));
    set("auth.builtin.PKI-DH.private_key", file("key.pem"));
    set("access.plugin", "builtin.Access-Permissions");
    set("access.builtin.Access-Permissions.permissions_ca", file("authority.pem"));
    set("access.builtin.Access-Permissions.governance", file("governance.p7s"));
    set("access.builtin.Access-Permissions.permissions", file("permissions.p7s"));
    set("crypto.plugin", "builtin.AES-GCM-GMAC");
}

template <typename Of>
static void run(const std::string& mode, int domain, const std::string& topic_name, const char* folder) {
    DomainParticipantQos settings;
    auto loopback = std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
    loopback->interfaceWhiteList.push_back("127.0.0.1");
    settings.transport().use_builtin_transports = false;
    settings.transport().user_transports.push_back(loopback);
    if (folder) secure(settings.properties(), folder);
    auto* member = DomainParticipantFactory::get_instance()->create_participant(domain, settings);
    TypeSupport type(new Type<Of>());
    type.register_type(member);
    Topic* topic = member->create_topic(topic_name, Of::NAME, TOPIC_QOS_DEFAULT);
    static Reads<Of> reads;
    if (mode == "write" || mode == "keep") {
        auto* publisher = member->create_publisher(PUBLISHER_QOS_DEFAULT);
        DataWriter* writer = publisher->create_datawriter(topic, kept<Of>(DATAWRITER_QOS_DEFAULT));
        PublicationMatchedStatus matched;
        while (mode == "write" && (writer->get_publication_matched_status(matched), matched.current_count == 0)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        for (int number : {1, 2, 3}) {
            Of value = Of::numbered(number);
            writer->write(&value);
        }
        if (Of::KEYED && mode == "write") {
            Of first = Of::numbered(1);
            writer->dispose(&first, HANDLE_NIL);
        }
    } else {
        DataReaderQos qos = kept<Of>(DATAREADER_QOS_DEFAULT);
        if (mode == "strict") qos.deadline().period = eprosima::fastrtps::Duration_t(0.01);
        member->create_subscriber(SUBSCRIBER_QOS_DEFAULT)->create_datareader(topic, qos, &reads);
    }
}

int main(int, char** arguments) {
    const std::string type_name = arguments[4];
    (type_name == "Pump" ? run<Pump> : type_name == "Note" ? run<Note> : run<Text>)(arguments[1], std::stoi(arguments[2]), arguments[3], arguments[5]);
    say("ready");
    while (std::getchar() != EOF) {
    }
    std::quick_exit(0);
}
