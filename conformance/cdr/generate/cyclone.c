/* Encodes every case with Cyclone DDS 0.10: little endian by its writer, big endian by its stream
   writer. The argument is the encoding. `cyclone.py` generates the cases, and `vectors.py` reads the
   output. */
#include "cyclone.h"
#include <stdio.h>
#include "dds/ddsi/ddsi_cdrstream.h"
#include "dds/ddsi/ddsi_keyhash.h"
#include "dds/ddsi/ddsi_serdata.h"
#include "dds/ddsi/ddsi_sertype.h"

static dds_entity_t participant;
static const char *encoding; /* "xcdr1" or "xcdr2" */

static void print_hex(const unsigned char *bytes, size_t size)
{
  for (size_t i = 0; i < size; i++)
    printf("%02x", bytes[i]);
}

static void print_key_hash(const struct ddsi_serdata *data, const dds_topic_descriptor_t *descriptor)
{
  struct ddsi_keyhash hash;
  if (descriptor->m_nkeys == 0)
    return;
  ddsi_serdata_get_keyhash(data, &hash, false);
  printf(" ");
  print_hex(hash.value, sizeof hash.value);
}

/* The stream writer writes neither header nor padding. Both are taken from the little-endian encoding
   `little`. */
static void print_big_endian(const struct ddsi_sertype *type, const unsigned char *little, const void *value)
{
  dds_ostreamBE_t stream;
  unsigned pad = little[3] & 3u;
  const unsigned char header[4] = { 0, (unsigned char) (little[1] & ~1u), 0, little[3] }, zeros[4] = { 0 };
  dds_ostreamBE_init(&stream, 0, little[1] >= 6 ? CDR_ENC_VERSION_2 : CDR_ENC_VERSION_1);
  if (!dds_stream_write_sampleBE(&stream, value, (const struct ddsi_sertype_default *) type))
    abort();
  print_hex(header, 4);
  print_hex(stream.x.m_buffer, stream.x.m_index);
  print_hex(zeros, pad);
  dds_ostreamBE_fini(&stream);
}

/* Writes a value and takes its serialised data with a reader of the same process. The data refer to
   the internal type. */
static struct ddsi_serdata *write_and_take(dds_entity_t topic, const dds_qos_t *qos, const void *value)
{
  struct ddsi_serdata *data;
  dds_sample_info_t info;
  dds_entity_t reader = dds_create_reader(participant, topic, qos, NULL);
  dds_entity_t writer = dds_create_writer(participant, topic, qos, NULL);
  if (dds_write(writer, value) != DDS_RETCODE_OK || dds_takecdr(reader, &data, 1, &info, DDS_ANY_STATE) != 1)
    abort();
  dds_delete(writer);
  dds_delete(reader);
  return data;
}

static void print_encodings(const char *name, const struct ddsi_serdata *data,
                            const dds_topic_descriptor_t *descriptor, const void *value)
{
  size_t size = ddsi_serdata_size(data);
  unsigned char *bytes = malloc(size);
  ddsi_serdata_to_ser(data, 0, size, bytes);
  printf("%s %s le ", name, encoding);
  print_hex(bytes, size);
  print_key_hash(data, descriptor);
  printf("\n%s %s be ", name, encoding);
  print_big_endian(data->type, bytes, value);
  print_key_hash(data, descriptor);
  printf("\n");
  free(bytes);
}

static void emit_as(const char *name, dds_data_representation_id_t representation,
                    const dds_topic_descriptor_t *descriptor, const void *value)
{
  dds_qos_t *qos = dds_create_qos();
  dds_qset_data_representation(qos, 1, &representation);
  dds_entity_t topic = dds_create_topic(participant, descriptor, "golden", qos, NULL);
  if (topic >= 0) { /* otherwise Cyclone DDS does not support this encoding for the type */
    struct ddsi_serdata *data = write_and_take(topic, qos, value);
    print_encodings(name, data, descriptor, value);
    ddsi_serdata_unref(data);
    dds_delete(topic);
  }
  dds_delete_qos(qos);
}

void emit(const char *name, const dds_topic_descriptor_t *descriptor, const void *value)
{
  bool one = strcmp(encoding, "xcdr1") == 0;
  emit_as(name, one ? DDS_DATA_REPRESENTATION_XCDR1 : DDS_DATA_REPRESENTATION_XCDR2, descriptor, value);
}

int main(int argc, char **argv)
{
  participant = dds_create_participant(DDS_DOMAIN_DEFAULT, NULL, NULL);
  if (argc != 2 || participant < 0)
    return 1;
  encoding = argv[1];
  all_cases();
  dds_delete(participant);
  return 0;
}
