//! A node of ROS 2 over Zenoh on the library `hiroz`, which tests start.
//!
//! ```text
//! polywire-ros2-zenoh-peer talk LOCATOR       publishes texts on /chatter, again and again
//! polywire-ros2-zenoh-peer latch LOCATOR      publishes three texts on /latched, which late subscribers get, too
//! polywire-ros2-zenoh-peer listen LOCATOR     prints what it hears on /there and /kept, and which publishers are there
//! polywire-ros2-zenoh-peer serve LOCATOR      adds two integers as the service /add
//! polywire-ros2-zenoh-peer call LOCATOR       calls the service /add, and prints the sums
//! polywire-ros2-zenoh-peer describe LOCATOR   prints the type of /there, as the publisher's node describes it
//! ```
//!
//! It is in domain 7, describes its own types, and ends when its standard input does.

use std::{collections::BTreeSet, env, io, thread, time::Duration};

use hiroz::{
    Builder as _, Result,
    context::ZContextBuilder,
    dynamic::DiscoveredTopicSchema,
    entity::{EndpointEntity, EndpointKind, Entity},
    node::ZNode,
    qos::{QosDurability, QosHistory, QosProfile},
};
use hiroz_msgs::{
    example_interfaces::{AddTwoIntsRequest, AddTwoIntsResponse, srv::AddTwoInts},
    std_msgs::String as Text,
};

const DOMAIN: usize = 7;

fn main() -> Result<()> {
    let [mode, locator] = env::args().skip(1).collect::<Vec<_>>().try_into().expect("MODE LOCATOR");
    thread::spawn(|| {
        io::stdin().lines().for_each(drop);
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Runtime::new()?;
    let _in_runtime = runtime.enter();
    let context = ZContextBuilder::default()
        .with_domain_id(DOMAIN)
        .with_mode("peer")
        .disable_multicast_scouting()
        .with_connect_endpoints([locator])
        .build()?;
    let node = context.create_node("peer").with_namespace("/peers").with_type_description_service().build()?;
    match mode.as_str() {
        "talk" => talk(&node),
        "latch" => latch(&node),
        "listen" => listen(&node),
        "serve" => serve(&node),
        "call" => runtime.block_on(call(&node)),
        "describe" => runtime.block_on(describe(&node)),
        other => panic!("there is no mode '{other}'"),
    }
}

/// The last three samples are kept for late subscribers.
fn transient_local() -> QosProfile {
    QosProfile {
        durability: QosDurability::TransientLocal,
        history: QosHistory::from_depth(3),
        ..QosProfile::default()
    }
}

fn talk(node: &ZNode) -> Result<()> {
    let chatter = node.create_pub::<Text>("/chatter").build()?;
    for number in 1.. {
        chatter.publish(&Text { data: format!("hello {number}") })?;
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn latch(node: &ZNode) -> Result<()> {
    let latched = node.create_pub::<Text>("/latched").with_qos(transient_local()).build()?;
    for number in 1..=3 {
        latched.publish(&Text { data: format!("kept {number}") })?;
    }
    println!("published");
    loop {
        thread::park();
    }
}

fn listen(node: &ZNode) -> Result<()> {
    let there = node.create_sub::<Text>("/there").build()?;
    let kept = node.create_sub::<Text>("/kept").with_qos(transient_local()).build()?;
    let mut seen = BTreeSet::new();
    loop {
        for (topic, text) in [
            ("/there", there.recv_timeout(Duration::from_millis(20))),
            ("/kept", kept.recv_timeout(Duration::from_millis(20))),
        ] {
            if let Ok(text) = text {
                println!("heard {topic} {}", text.data);
            }
            for entity in node.graph().get_entities_by_topic(EndpointKind::Publisher, topic) {
                let Entity::Endpoint(EndpointEntity { node: Some(node), type_info: Some(of), qos, .. }) = &*entity
                else {
                    continue;
                };
                let hash = of.hash.to_rihs_string();
                let line = format!("publisher {topic} {} {} {hash} {:?}", node.name, of.name, qos.durability);
                if seen.insert(line.clone()) {
                    println!("{line}");
                }
            }
        }
    }
}

fn serve(node: &ZNode) -> Result<()> {
    let mut server = node.create_service::<AddTwoInts>("/add").build()?;
    println!("ready");
    loop {
        let request = server.take_request()?;
        let AddTwoIntsRequest { a, b } = *request.message();
        request.reply_blocking(&AddTwoIntsResponse { sum: a + b })?;
        println!("served {a} + {b}");
    }
}

async fn call(node: &ZNode) -> Result<()> {
    let client = node.create_client::<AddTwoInts>("/add").build()?;
    for a in 1.. {
        match client.call_with_timeout(&AddTwoIntsRequest { a, b: 40 }, Duration::from_secs(2)).await {
            Ok(AddTwoIntsResponse { sum }) => println!("sum {sum}"),
            Err(error) => println!("error {error}"),
        }
    }
    Ok(())
}

async fn describe(node: &ZNode) -> Result<()> {
    loop {
        match node.discover_topic_schema("/there", Duration::from_secs(2)).await {
            Ok(DiscoveredTopicSchema { schema, type_hash, .. }) => {
                let fields: Vec<&str> = schema.fields.iter().map(|field| field.name.as_str()).collect();
                println!("type {} {type_hash} {}", schema.type_name, fields.join(","));
                return Ok(());
            }
            Err(error) => println!("error {error}"),
        }
    }
}
