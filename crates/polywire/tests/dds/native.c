/* A program that knows only DDS: Cyclone DDS's C library, with the code that idlc makes of native.idl.

     native write DOMAIN TOPIC   waits for a reader, writes two values, disposes of the first, unregisters the second
     native read DOMAIN TOPIC    prints each sample that it reads: the state of the instance, and the value as JSON
     native strict DOMAIN TOPIC  prints the policy by which a writer does not match

   Strings must have no characters that JSON escapes. It ends when its standard input does. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dds/dds.h"
#include "native.h"

enum { AT_ONCE = 16 };

static int checked(int code, const char *what)
{
  if (code < 0) {
    fprintf(stderr, "%s: %s\n", what, dds_strretcode(-code));
    exit(1);
  }
  return code;
}

/* Whether standard input has ended, after at most 5 ms. */
static int has_ended(void)
{
  struct pollfd input = { .fd = 0, .events = POLLIN };
  char c;
  return poll(&input, 1, 5) > 0 && fread(&c, 1, 1, stdin) == 0;
}

static dds_qos_t *reliable(void)
{
  dds_qos_t *qos = dds_create_qos();
  dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(10));
  /* Nothing is lost while two programs are still finding each other. */
  dds_qset_durability(qos, DDS_DURABILITY_TRANSIENT_LOCAL);
  dds_qset_durability_service(qos, 0, DDS_HISTORY_KEEP_ALL, -1, -1, -1, -1);
  dds_qset_history(qos, DDS_HISTORY_KEEP_ALL, 0);
  dds_qset_writer_data_lifecycle(qos, false);
  return qos;
}

static void write_units(dds_entity_t participant, dds_entity_t topic)
{
  dds_qos_t *qos = reliable();
  dds_entity_t writer = checked(dds_create_writer(participant, topic, qos, NULL), "writer");
  dds_publication_matched_status_t matched = { 0 };
  while (matched.current_count == 0 && !has_ended())
    checked(dds_get_publication_matched_status(writer, &matched), "status");

  plant_Alarm alarms[] = { { .code = 1, .note = "hot" }, { .code = -2, .note = NULL } };
  double levels[] = { 0.5, -1.25 };
  char *tags[] = { "", "zwölf" };
  double limit = 99.5;
  plant_Unit full = {
    .id = 7, .hall = "Nordhalle", .mode = plant_AUTO, .last = { .code = -3, .note = "leak" },
    .alarms = { 2, 2, alarms, false }, .levels = { 2, 2, levels, false }, .tags = { 2, 2, tags, false }, .limit = &limit
  };
  plant_Unit empty = { .id = 8, .hall = "Südhalle 8" };
  checked(dds_write(writer, &full), "write");
  checked(dds_write(writer, &empty), "write");
  checked(dds_dispose(writer, &full), "dispose");
  checked(dds_unregister_instance(writer, &empty), "unregister");
  dds_delete_qos(qos);
  while (!has_ended())
    ;
}

static void print_alarm(const plant_Alarm *alarm)
{
  printf("{\"code\":%d", (int) alarm->code);
  if (alarm->note)
    printf(",\"note\":\"%s\"", alarm->note);
  printf("}");
}

static void print_unit(const plant_Unit *unit)
{
  static const char *const modes[] = { "OFF", "MANUAL", "AUTO" };
  printf("{\"id\":%u,\"hall\":\"%s\",\"mode\":\"%s\",\"last\":", (unsigned) unit->id, unit->hall, modes[unit->mode]);
  print_alarm(&unit->last);
  printf(",\"alarms\":[");
  for (uint32_t i = 0; i < unit->alarms._length; i++) {
    printf("%s", i ? "," : "");
    print_alarm(&unit->alarms._buffer[i]);
  }
  printf("],\"levels\":[");
  for (uint32_t i = 0; i < unit->levels._length; i++)
    printf("%s%.17g", i ? "," : "", unit->levels._buffer[i]);
  printf("],\"tags\":[");
  for (uint32_t i = 0; i < unit->tags._length; i++)
    printf("%s\"%s\"", i ? "," : "", unit->tags._buffer[i]);
  printf("]");
  if (unit->limit)
    printf(",\"limit\":%.17g", *unit->limit);
  printf("}\n");
}

static void read_units(dds_entity_t participant, dds_entity_t topic)
{
  dds_qos_t *qos = reliable();
  dds_entity_t reader = checked(dds_create_reader(participant, topic, qos, NULL), "reader");
  dds_delete_qos(qos);
  while (!has_ended()) {
    void *units[AT_ONCE] = { NULL };
    dds_sample_info_t infos[AT_ONCE];
    int count = checked(dds_take(reader, units, infos, AT_ONCE, AT_ONCE), "take");
    for (int i = 0; i < count; i++) {
      const char *state = infos[i].instance_state == DDS_IST_ALIVE ? "alive"
        : infos[i].instance_state == DDS_IST_NOT_ALIVE_DISPOSED ? "disposed" : "no writers";
      printf("%s%s ", state, infos[i].valid_data ? "" : ", key");
      print_unit(units[i]);
    }
    fflush(stdout);
    if (count > 0)
      checked(dds_return_loan(reader, units, count), "return");
  }
}

static void print_mismatch(dds_entity_t participant, dds_entity_t topic)
{
  dds_qos_t *qos = reliable();
  dds_entity_t reader = checked(dds_create_reader(participant, topic, qos, NULL), "reader");
  dds_delete_qos(qos);
  dds_requested_incompatible_qos_status_t status = { 0 };
  while (status.total_count == 0 && !has_ended())
    checked(dds_get_requested_incompatible_qos_status(reader, &status), "status");
  printf("incompatible %u\n", (unsigned) status.last_policy_id);
  fflush(stdout);
  while (!has_ended())
    ;
}

int main(int argc, char **argv)
{
  if (argc != 4)
    return 2;
  dds_entity_t participant = checked(dds_create_participant((dds_domainid_t) atoi(argv[2]), NULL, NULL), "participant");
  dds_entity_t topic = checked(dds_create_topic(participant, &plant_Unit_desc, argv[3], NULL, NULL), "topic");
  if (strcmp(argv[1], "write") == 0)
    write_units(participant, topic);
  else if (strcmp(argv[1], "read") == 0)
    read_units(participant, topic);
  else
    print_mismatch(participant, topic);
  dds_delete(participant);
  return 0;
}
