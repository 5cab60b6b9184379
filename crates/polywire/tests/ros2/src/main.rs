//! A node of ROS 2 on the libraries `ros2-client` and RustDDS, which tests start.
//!
//! ```text
//! polywire-ros2-peer talk DOMAIN NODE       publishes texts on /chatter and readings on /readings, again and again
//! polywire-ros2-peer listen DOMAIN NODE     prints what it hears there, who is there, and the hashes of types
//! polywire-ros2-peer serve DOMAIN NODE      adds two integers as the service /add
//! polywire-ros2-peer call DOMAIN NODE       calls the service /add, and prints the sums
//! polywire-ros2-peer describe DOMAIN NODE   asks the node /NODE for the type std_msgs/msg/String, and prints its fields
//! ```
//!
//! It ends when its standard input does.

use std::{collections::BTreeSet, env, io, net::Ipv4Addr, thread, time::Duration};

use futures::{Stream, StreamExt as _, future::Either};
use ros2_client::{
    Context, DEFAULT_SUBSCRIPTION_QOS, Message, MessageTypeName, Name, Node, NodeEvent, NodeName, NodeOptions,
    QosProfile, ServiceMapping, ServiceTypeName, qos::History,
};
use rustdds::{DomainParticipantBuilder, Topic};
use serde::{Deserialize, Serialize};

/// `demo_msgs/msg/Reading`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Reading {
    stamp: Time,
    sensor: String,
    values: Vec<f64>,
    flags: [u8; 3],
}

/// `builtin_interfaces/msg/Time`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Time {
    sec: i32,
    nanosec: u32,
}

/// `example_interfaces/srv/AddTwoInts_Request`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct AddRequest {
    a: i64,
    b: i64,
}

/// `example_interfaces/srv/AddTwoInts_Response`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct AddResponse {
    sum: i64,
}

/// `type_description_interfaces/srv/GetTypeDescription_Request`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TypeRequest {
    type_name: String,
    type_hash: String,
    include_type_sources: bool,
}

/// `type_description_interfaces/srv/GetTypeDescription_Response`, as far as a type without others
/// has values there.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TypeResponse {
    successful: bool,
    failure_reason: String,
    description: Individual,
    referenced: Vec<Individual>,
    sources: Vec<[String; 3]>,
    information: Vec<[String; 2]>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Individual {
    name: String,
    fields: Vec<Field>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Field {
    name: String,
    type_id: u8,
    capacity: u64,
    string_capacity: u64,
    nested_type_name: String,
    default_value: String,
}

impl Message for TypeRequest {}
impl Message for TypeResponse {}
impl Message for AddRequest {}
impl Message for AddResponse {}

fn main() {
    let [mode, domain, name] = env::args().skip(1).collect::<Vec<_>>().try_into().expect("MODE DOMAIN NODE");
    thread::spawn(|| {
        io::stdin().lines().for_each(drop);
        std::process::exit(0);
    });
    let domain = domain.parse().expect("a domain is a number");
    let participant = DomainParticipantBuilder::new(domain).with_only_networks([Ipv4Addr::LOCALHOST]).build();
    let context = Context::from_domain_participant(participant.expect("a participant")).expect("a context");
    let node_name = NodeName::new("/peers", &name).expect("a name");
    let mut node = context.new_node(node_name, NodeOptions::new()).expect("a node");
    let spinner = node.spinner().expect("a spinner").spin();
    thread::spawn(|| smol::block_on(spinner));
    match mode.as_str() {
        "talk" => talk(&mut node),
        "listen" => listen(&mut node, &context),
        "serve" => serve(&mut node),
        "call" => call(&mut node),
        "describe" => describe(&mut node, &name),
        other => panic!("there is no mode '{other}'"),
    }
}

fn reliable() -> QosProfile {
    QosProfile::publisher_default().history(History::KeepLast { depth: 10 })
}

fn topic(node: &Node, name: &str, package: &str, of: &str) -> Topic {
    let name = Name::new("/", name).expect("a name");
    node.create_topic(&name, MessageTypeName::new(package, of), &DEFAULT_SUBSCRIPTION_QOS).expect("a topic")
}

fn talk(node: &mut Node) {
    let chatter = topic(node, "chatter", "std_msgs", "String");
    let chatter = node.create_publisher::<String>(&chatter, Some(reliable())).expect("a publisher");
    let readings = topic(node, "readings", "demo_msgs", "Reading");
    let readings = node.create_publisher::<Reading>(&readings, Some(reliable())).expect("a publisher");
    for number in 1.. {
        thread::sleep(Duration::from_millis(50));
        // Nobody may be there yet.
        let _ = chatter.publish(format!("hello {number}"));
        let stamp = Time { sec: number, nanosec: 5 };
        let values = vec![f64::from(number), 0.5];
        let _ = readings.publish(Reading { stamp, sensor: "front".into(), values, flags: [1, 2, 3] });
    }
}

fn listen(node: &mut Node, context: &Context) {
    let chatter = topic(node, "chatter", "std_msgs", "String");
    let chatter = node.create_subscription::<String>(&chatter, Some(reliable())).expect("a subscription");
    let readings = topic(node, "readings", "demo_msgs", "Reading");
    let readings = node.create_subscription::<Reading>(&readings, Some(reliable())).expect("a subscription");
    let events = node.status_receiver().expect("the spinner runs");
    let participant = context.domain_participant();
    thread::spawn(move || {
        let mut seen = BTreeSet::new();
        loop {
            thread::sleep(Duration::from_millis(20));
            for writer in participant.discovered_writers() {
                let data = &writer.publication_topic_data;
                // RustDDS gives it as it came, with the length in front and padding behind.
                let user_data = String::from_utf8_lossy(writer.user_data.get(4..).unwrap_or_default());
                let user_data = user_data.trim_end_matches('\0');
                if seen.insert(format!("{} {} {user_data}", data.topic_name, data.type_name)) {
                    println!("writer {} {} {user_data}", data.topic_name, data.type_name);
                }
            }
        }
    });
    let nodes = events.for_each(async |event| {
        if let NodeEvent::ParticipantEntities(info) = event {
            info.nodes().iter().for_each(|node| println!("node {}", node.fully_qualified_name()));
        }
    });
    let texts = printed(chatter.async_stream());
    let structures = printed(readings.async_stream());
    smol::block_on(futures::future::join3(nodes, texts, structures));
}

async fn printed<T: std::fmt::Debug, I, E: std::fmt::Debug>(heard: impl Stream<Item = Result<(T, I), E>>) {
    heard
        .for_each(async |next| match next {
            Ok((message, _)) => println!("heard {message:?}"),
            Err(error) => println!("error {error:?}"),
        })
        .await;
}

fn add() -> (Name, ServiceTypeName) {
    (Name::new("/", "add").expect("a name"), ServiceTypeName::new("example_interfaces", "AddTwoInts"))
}

/// `ROS2_PEER_MAPPING` in the environment names the mapping of services.
fn mapping() -> ServiceMapping {
    match env::var("ROS2_PEER_MAPPING").as_deref() {
        Ok("cyclone") => ServiceMapping::Cyclone,
        Ok("basic") => ServiceMapping::Basic,
        _ => ServiceMapping::Enhanced,
    }
}

fn serve(node: &mut Node) {
    let (name, of) = add();
    let server =
        node.create_server::<AddRequest, AddResponse>(mapping(), &name, &of, reliable(), reliable()).expect("a server");
    println!("ready");
    smol::block_on(server.receive_request_stream().for_each(async |next| match next {
        Ok((id, AddRequest { a, b })) => {
            let sent = server.async_send_response(id, AddResponse { sum: a + b }).await;
            println!("served {a} + {b}: {}", if sent.is_ok() { "sent" } else { "failed" });
        }
        Err(error) => println!("error {error:?}"),
    }));
}

fn call(node: &mut Node) {
    let (name, of) = add();
    let client =
        node.create_client::<AddRequest, AddResponse>(mapping(), &name, &of, reliable(), reliable()).expect("a client");
    smol::block_on(async {
        client.wait_for_service(&*node).await;
        for a in 1.. {
            match client.async_send_request(AddRequest { a, b: 40 }).await {
                Ok(id) => match soon(client.async_receive_response(id)).await {
                    Some(Ok(AddResponse { sum })) => println!("sum {sum}"),
                    Some(Err(error)) => println!("error {error:?}"),
                    None => println!("nothing came"),
                },
                Err(error) => println!("error {error:?}"),
            }
            smol::Timer::after(Duration::from_millis(200)).await;
        }
    });
}

/// What comes within a second. What is sent before the other end has found this one is lost.
async fn soon<T>(coming: impl Future<Output = T>) -> Option<T> {
    let patience = smol::Timer::after(Duration::from_secs(1));
    match futures::future::select(std::pin::pin!(coming), patience).await {
        Either::Left((came, _)) => Some(came),
        Either::Right(_) => None,
    }
}

fn describe(node: &mut Node, of: &str) {
    let name = Name::new(&format!("/{of}"), "get_type_description").expect("a name");
    let service = ServiceTypeName::new("type_description_interfaces", "GetTypeDescription");
    let client = node
        .create_client::<TypeRequest, TypeResponse>(mapping(), &name, &service, reliable(), reliable())
        .expect("a client");
    let request = TypeRequest {
        type_name: "std_msgs/msg/String".into(),
        type_hash: "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18".into(),
        include_type_sources: true,
    };
    smol::block_on(async {
        client.wait_for_service(&*node).await;
        loop {
            let Ok(id) = client.async_send_request(request.clone()).await else { continue };
            match soon(client.async_receive_response(id)).await {
                Some(Ok(TypeResponse { successful: true, description, .. })) => {
                    let Individual { name, fields } = description;
                    let fields: Vec<String> =
                        fields.iter().map(|Field { name, type_id, .. }| format!("{name}:{type_id}")).collect();
                    println!("type {name} {}", fields.join(","));
                }
                Some(other) => println!("error {other:?}"),
                None => println!("nothing came"),
            }
            smol::Timer::after(Duration::from_millis(200)).await;
        }
    });
}
