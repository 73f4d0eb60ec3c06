/* Writes and reads an OTF2 trace that is kept in multifiles: otf2 write|read. */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <otf2/otf2.h>

/* OTF2 3.0 fills displacements for the ranks below the root only, so that with rank 0 as the root
 * the locations of all ranks fall on one another. */
static int gatherv_side_by_side(const void *in, int count, MPI_Datatype type, void *out,
                                const int *counts, int *places, MPI_Datatype of, int root,
                                MPI_Comm comm) {
    int ranks;
    MPI_Comm_size(comm, &ranks);
    for (int rank = 0; places != NULL && rank < ranks; rank++)
        places[rank] = rank == 0 ? 0 : places[rank - 1] + counts[rank - 1];
    return MPI_Gatherv(in, count, type, out, counts, places, of, root, comm);
}

#define MPI_Gatherv gatherv_side_by_side
#include <otf2/OTF2_MPI_Collectives.h>
#undef MPI_Gatherv

/* Of each process: with one, as many readers as writers open the multifile without a mapping. */
#ifndef LOCATIONS
#define LOCATIONS 2
#endif

/* The events of a location fill several chunks of OTF2. */
enum { CALLS = 30000, REGIONS = 3, CHUNK = 256 << 10 };

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OTF2(call) CHECK((call) == OTF2_SUCCESS)

static int me, size;

static OTF2_FlushType pre_flush(void *data, OTF2_FileType type, OTF2_LocationRef location,
                                void *caller, bool final) {
    (void)data, (void)type, (void)location, (void)caller, (void)final;
    return OTF2_FLUSH;
}

static OTF2_TimeStamp post_flush(void *data, OTF2_FileType type, OTF2_LocationRef location) {
    (void)data, (void)type, (void)location;
    return CALLS * 10;
}

static void write_events(OTF2_Archive *archive, uint64_t location) {
    OTF2_EvtWriter *writer = OTF2_Archive_GetEvtWriter(archive, location);
    CHECK(writer != NULL);
    for (uint32_t call = 0; call < CALLS; call++) {
        uint32_t region = (call + (uint32_t)location) % REGIONS;
        OTF2(OTF2_EvtWriter_Enter(writer, NULL, call * 10, region));
        OTF2(OTF2_EvtWriter_Leave(writer, NULL, call * 10 + 5, region));
    }
    OTF2(OTF2_Archive_CloseEvtWriter(archive, writer));
}

/* Names by which a reader knows regions and locations. */
static void write_definitions(OTF2_Archive *archive) {
    OTF2_GlobalDefWriter *writer = OTF2_Archive_GetGlobalDefWriter(archive);
    const char *strings[] = {"", "compute", "exchange", "store", "node", "host", "process", "loc"};
    CHECK(writer != NULL);
    OTF2(OTF2_GlobalDefWriter_WriteClockProperties(writer, 1000000000, 0, CALLS * 10 + 1,
                                                   OTF2_UNDEFINED_TIMESTAMP));
    for (uint32_t i = 0; i < sizeof strings / sizeof *strings; i++)
        OTF2(OTF2_GlobalDefWriter_WriteString(writer, i, strings[i]));
    for (uint32_t region = 0; region < REGIONS; region++)
        OTF2(OTF2_GlobalDefWriter_WriteRegion(writer, region, region + 1, region + 1, 0,
                                              OTF2_REGION_ROLE_FUNCTION, OTF2_PARADIGM_USER,
                                              OTF2_REGION_FLAG_NONE, 0, 0, 0));
    OTF2(OTF2_GlobalDefWriter_WriteSystemTreeNode(writer, 0, 4, 5,
                                                  OTF2_UNDEFINED_SYSTEM_TREE_NODE));
    for (uint32_t rank = 0; rank < (uint32_t)size; rank++) {
        OTF2(OTF2_GlobalDefWriter_WriteLocationGroup(writer, rank, 6,
                                                     OTF2_LOCATION_GROUP_TYPE_PROCESS, 0,
                                                     OTF2_UNDEFINED_LOCATION_GROUP));
        for (uint64_t i = 0; i < LOCATIONS; i++)
            OTF2(OTF2_GlobalDefWriter_WriteLocation(writer, rank * LOCATIONS + i, 7,
                                                    OTF2_LOCATION_TYPE_CPU_THREAD, 2 * CALLS,
                                                    rank));
    }
    OTF2(OTF2_Archive_CloseGlobalDefWriter(archive, writer));
}

static void write_trace(void) {
    OTF2_FlushCallbacks flush = {.otf2_pre_flush = pre_flush, .otf2_post_flush = post_flush};
    OTF2_Archive *archive = OTF2_Archive_Open("trace", "trace", OTF2_FILEMODE_WRITE, CHUNK, CHUNK,
                                              OTF2_SUBSTRATE_SION, OTF2_COMPRESSION_NONE);
    MPI_Comm local;
    CHECK(archive != NULL);
    OTF2(OTF2_Archive_SetFlushCallbacks(archive, &flush, NULL));
    /* Two physical files. */
    MPI_Comm_split(MPI_COMM_WORLD, me < size / 2, me, &local);
    OTF2(OTF2_MPI_Archive_SetCollectiveCallbacks(archive, MPI_COMM_WORLD, local));
    OTF2(OTF2_Archive_OpenEvtFiles(archive));
    for (int i = 0; i < LOCATIONS; i++)
        write_events(archive, (uint64_t)(me * LOCATIONS + i));
    OTF2(OTF2_Archive_CloseEvtFiles(archive));
    OTF2(OTF2_Archive_OpenDefFiles(archive));
    for (int i = 0; i < LOCATIONS; i++) {
        OTF2_DefWriter *writer =
            OTF2_Archive_GetDefWriter(archive, (uint64_t)(me * LOCATIONS + i));
        CHECK(writer != NULL);
        OTF2(OTF2_Archive_CloseDefWriter(archive, writer));
    }
    OTF2(OTF2_Archive_CloseDefFiles(archive));
    if (me == 0)
        write_definitions(archive);
    MPI_Barrier(MPI_COMM_WORLD);
    OTF2(OTF2_Archive_Close(archive));
    MPI_Comm_free(&local);
}

static uint32_t entered[64];

static OTF2_CallbackCode on_enter(OTF2_LocationRef location, OTF2_TimeStamp time, void *data,
                                  OTF2_AttributeList *attributes, OTF2_RegionRef region) {
    (void)data, (void)attributes;
    CHECK(location < 64 && time == entered[location] * 10);
    CHECK(region == (entered[location]++ + location) % REGIONS);
    return OTF2_CALLBACK_SUCCESS;
}

/* Each rank reads every `size`th location, whoever wrote it. */
static void read_trace(void) {
    OTF2_Reader *reader = OTF2_Reader_Open("trace/trace.otf2");
    uint64_t count, read, locations = 0;
    CHECK(reader != NULL);
    OTF2(OTF2_MPI_Reader_SetCollectiveCallbacks(reader, MPI_COMM_WORLD));
    OTF2(OTF2_Reader_GetNumberOfLocations(reader, &count));
    OTF2_GlobalDefReader *definitions = OTF2_Reader_GetGlobalDefReader(reader);
    OTF2(OTF2_Reader_ReadAllGlobalDefinitions(reader, definitions, &read));
    for (uint64_t location = (uint64_t)me; location < count; location += (uint64_t)size) {
        OTF2(OTF2_Reader_SelectLocation(reader, location));
        locations++;
    }
    OTF2(OTF2_Reader_OpenDefFiles(reader));
    OTF2(OTF2_Reader_OpenEvtFiles(reader));
    for (uint64_t location = (uint64_t)me; location < count; location += (uint64_t)size) {
        OTF2_DefReader *own = OTF2_Reader_GetDefReader(reader, location);
        if (own != NULL) {
            OTF2(OTF2_Reader_ReadAllLocalDefinitions(reader, own, &read));
            OTF2(OTF2_Reader_CloseDefReader(reader, own));
        }
        CHECK(OTF2_Reader_GetEvtReader(reader, location) != NULL);
    }
    OTF2(OTF2_Reader_CloseDefFiles(reader));
    read = 0;
    if (locations > 0) {
        OTF2_GlobalEvtReader *events = OTF2_Reader_GetGlobalEvtReader(reader);
        OTF2_GlobalEvtReaderCallbacks *callbacks = OTF2_GlobalEvtReaderCallbacks_New();
        OTF2(OTF2_GlobalEvtReaderCallbacks_SetEnterCallback(callbacks, on_enter));
        OTF2(OTF2_Reader_RegisterGlobalEvtCallbacks(reader, events, callbacks, NULL));
        OTF2_GlobalEvtReaderCallbacks_Delete(callbacks);
        OTF2(OTF2_Reader_ReadAllGlobalEvents(reader, events, &read));
        OTF2(OTF2_Reader_CloseGlobalEvtReader(reader, events));
    }
    CHECK(read == locations * CALLS * 2);
    for (uint64_t location = (uint64_t)me; location < count; location += (uint64_t)size)
        CHECK(entered[location] == CALLS);
    OTF2(OTF2_Reader_CloseEvtFiles(reader));
    OTF2(OTF2_Reader_Close(reader));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc == 2 && strcmp(argv[1], "write") == 0)
        write_trace();
    else if (argc == 2 && strcmp(argv[1], "read") == 0)
        read_trace();
    else
        return 2;
    return MPI_Finalize();
}
